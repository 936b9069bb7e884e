"""Checks the order of the node's modules: each imports only modules below it.

The order is the table under "Layers" in ARCHITECTURE.md, from top to bottom: each row names a crate and modules of
it. Cargo holds the order of the crates, this script the order of the modules in each. Modules of one row do not import
each other. The script reads only product code: a test may import any module of its crate.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The list of modules.
OUTSIDE = {"lib"}

COMMENT = re.compile(r"(?m)^\s*//.*$")
TEST_MODULE = re.compile(r"\n#\[cfg\(test\)\]\n(?:#\[[^\n]*\]\n)*mod \w+ \{.*", re.DOTALL)
NESTED = r"\{(?:[^{}]|\{[^{}]*\})*\}"
PATH = re.compile(rf"\bcrate::({NESTED}|\w+)")


def main() -> int:
    """Prints the imports that break the order."""
    problems = []
    for crate, rows in layers((ROOT / "ARCHITECTURE.md").read_text()).items():
        problems += check(ROOT / "crates" / crate / "src", rows)
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


def check(source: Path, rows: list[list[str]]) -> list[str]:
    """Returns the problems of one crate, whose modules are in `rows` from top to bottom."""
    row_of = {module: number for number, row in enumerate(rows) for module in row}
    found = {path.stem if path.parent == source else path.name for path in source.iterdir()} - OUTSIDE
    crate = source.parent.name
    missing, unknown = sorted(found - set(row_of)), sorted(set(row_of) - found)
    problems = [f"ARCHITECTURE.md: the table of layers lacks {module} of {crate}" for module in missing]
    problems += [f"ARCHITECTURE.md: {module} in the table of layers is no module of {crate}" for module in unknown]
    for path in sorted(source.rglob("*.rs")):
        importer, parts = path.relative_to(source).parts[0].removesuffix(".rs"), path.relative_to(source).parts
        if importer in OUTSIDE or "tests" in parts or path.name == "tests.rs":
            continue
        for imported in sorted(set(imports(path.read_text())) - {importer}):
            if imported in row_of and row_of.get(importer, len(rows)) >= row_of[imported]:
                problems.append(f"{path.relative_to(ROOT)}: imports {imported}, which does not stand below {importer}")
    return problems


def layers(page: str) -> dict[str, list[list[str]]]:
    """Returns the rows of modules of each crate, from top to bottom."""
    section = page.split("\n## Layers\n")[1].split("\n## ", maxsplit=1)[0]
    rows: dict[str, list[list[str]]] = {}
    for line in section.splitlines():
        if not line.startswith("| `shoal-"):
            continue
        crate, _, modules = line.strip("| ").split(" | ")
        rows.setdefault(crate.strip("`"), []).append(re.findall(r"`(\w+)`", modules))
    return rows


def imports(text: str) -> Iterator[str]:
    """Returns the modules of this crate that product code names."""
    for match in PATH.finditer(TEST_MODULE.sub("\n", COMMENT.sub("", text))):
        path = match.group(1)
        if not path.startswith("{"):
            yield path
            continue
        depth, name = 0, ""
        for character in path[1:-1] + ",":
            depth += {"{": 1, "}": -1}.get(character, 0)
            if character == "," and depth == 0:
                yield name.strip().split("::")[0]
                name = ""
            else:
                name += character


if __name__ == "__main__":
    sys.exit(main())
