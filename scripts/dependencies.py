"""Finds dependencies that no code of their crate names, and those of product code that only tests name.

No product code may depend on the laboratory.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Crates whose library has another name than their package.
LIBRARIES = {"md-5": "md5"}
# The crate of what only experiments use.
LABORATORY = "shoal-lab"
# Dependencies that are there for a feature or a build flag that they switch on elsewhere.
UNNAMED: set[tuple[str, str]] = set()

COMMENT = re.compile(r"(?m)^\s*//.*$")
TEST_MODULE = re.compile(r"\n#\[cfg\(test\)\]\n(?:#\[[^\n]*\]\n)*mod \w+ \{.*", re.DOTALL)


def main() -> int:
    """Prints the dependencies that are declared and not used."""
    problems = []
    for manifest in sorted(ROOT.glob("crates/*/Cargo.toml")):
        crate, declared = manifest.parent, tomllib.loads(manifest.read_text())
        product, tests = product_code(crate), all_code(crate)
        place = manifest.relative_to(ROOT)
        for name in declared.get("dependencies", {}):
            if name == LABORATORY:
                problems.append(f"{place}: {name} is for experiments and tests alone")
            if (crate.name, name) in UNNAMED or names(product, name):
                continue
            hint = "belongs under [dev-dependencies]" if names(tests, name) else "is not used"
            problems.append(f"{place}: {name} {hint}")
        problems += [
            f"{place}: {name} is not used by a test"
            for name in declared.get("dev-dependencies", {})
            if not names(tests, name)
        ]
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


def names(code: str, dependency: str) -> bool:
    """Returns whether code names the library of a dependency."""
    library = LIBRARIES.get(dependency, dependency.replace("-", "_"))
    return re.search(rf"(?<![\w:]){library}(?:::|;|\b as\b)", code) is not None


def product_code(crate: Path) -> str:
    """Returns the code that users run: no test, no example."""
    files = [path for path in (crate / "src").rglob("*.rs") if "tests" not in path.parts and path.name != "tests.rs"]
    return "\n".join(TEST_MODULE.sub("\n", COMMENT.sub("", path.read_text())) for path in files)


def all_code(crate: Path) -> str:
    """All code of a crate, with that of the fuzz targets if its tests include them."""
    files = list(crate.rglob("*.rs"))
    if (crate / "tests/it/fuzz.rs").exists():
        files += (ROOT / "fuzz/checks").glob("*.rs")
    return "\n".join(COMMENT.sub("", path.read_text()) for path in files)


if __name__ == "__main__":
    sys.exit(main())
