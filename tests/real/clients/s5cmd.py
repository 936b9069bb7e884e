"""s5cmd: many transfers at once, with ranges that run past the end of objects."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ..processes import run
from ..report import Difference
from ..store import Store, content, digest

MIB = 1 << 20
S5CMD = Path(sys.executable).with_name("s5cmd")


def s5cmd(store: Store, *arguments: str | Path) -> str:
    """Runs `s5cmd` against the store, without retries."""
    return run(
        [S5CMD, "--endpoint-url", store.url, "--retry-count", "0", "--json", *arguments],
        env=store.environment(),
        timeout_s=120,
    )


def copies_a_tree(store: Store) -> dict[str, object]:
    """A hundred small files and a large one up, and down twice."""
    tree = store.scratch / "s5-tree"
    (tree / "small").mkdir(parents=True)
    for number in range(100):
        (tree / "small" / f"{number:03}").write_bytes(content(1000 + number))
    (tree / "large").write_bytes(content(17 * MIB + 3, seed=11))
    s5cmd(store, "cp", "--part-size", "5", f"{tree}/", f"s3://{store.bucket}/s5/")
    for reading in ("first", "second"):
        back = store.scratch / f"s5-{reading}"
        s5cmd(store, "cp", "--part-size", "5", "--concurrency", "4", f"s3://{store.bucket}/s5/*", f"{back}/")
        if contents(back) != contents(tree):
            raise Difference(f"the {reading} download is not the tree")
    return {"listed": listing(store, "s5/*")}


def contents(folder: Path) -> dict[str, str]:
    """Returns the digest of every file below a folder."""
    return {str(path.relative_to(folder)): digest(path.read_bytes()) for path in folder.rglob("*") if path.is_file()}


def listing(store: Store, pattern: str) -> list[tuple[str, int]]:
    """Names and sizes as `ls` prints them."""
    lines = (json.loads(line) for line in s5cmd(store, "ls", f"s3://{store.bucket}/{pattern}").splitlines())
    return sorted((entry["key"].partition(store.bucket)[2], entry["size"]) for entry in lines)


def prints_moves_and_removes(store: Store) -> dict[str, object]:
    """cat, cp within the store, mv, du, rm."""
    source = store.scratch / "s5-one"
    source.write_text("printed\n")
    at = f"s3://{store.bucket}/s5-moved"
    s5cmd(store, "cp", source, f"{at}/one")
    printed = [s5cmd(store, "cat", f"{at}/one") for _ in range(2)]
    s5cmd(store, "cp", f"{at}/one", f"{at}/copied")
    s5cmd(store, "mv", f"{at}/one", f"{at}/moved")
    used = json.loads(s5cmd(store, "du", f"{at}/*"))
    listed = listing(store, "s5-moved/*")
    s5cmd(store, "rm", f"{at}/*")
    return {"printed": printed, "used": [used["count"], used["size"]], "listed": listed}


CHECKS = (copies_a_tree, prints_moves_and_removes)
