"""aws-cli, with the commands that people type."""

from __future__ import annotations

import sys
from pathlib import Path

from ..processes import run
from ..report import Difference
from ..store import Store, content

MIB = 1 << 20
AWS = Path(sys.executable).with_name("aws")


def aws(store: Store, *arguments: str | Path) -> str:
    """Runs `aws` against the store."""
    return run([AWS, "--endpoint-url", store.url, *arguments], env=store.environment(), timeout_s=120)


def copies_up_and_down(store: Store) -> dict[str, object]:
    """A large file up in parts and down in ranges, twice, and a small one through stdin and stdout."""
    large, back = store.scratch / "large", store.scratch / "back"
    large.write_bytes(content(21 * MIB, seed=10))
    aws(store, "s3", "cp", "--no-progress", large, f"s3://{store.bucket}/cli/large")
    for _ in range(2):
        aws(store, "s3", "cp", "--no-progress", f"s3://{store.bucket}/cli/large", back)
        if back.read_bytes() != large.read_bytes():
            raise Difference("the file came back changed")
    return {
        "head": aws(store, "s3api", "head-object", "--bucket", store.bucket, "--key", "cli/large", "--query", "ETag")
    }


def synchronises_folders(store: Store) -> dict[str, object]:
    """A tree up, a tree down, and nothing to do the second time."""
    tree, back = store.scratch / "tree", store.scratch / "tree-back"
    for name in ("a.txt", "sub/b c.txt", "sub/ümlaut", "sub/deep/empty"):
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"" if name.endswith("empty") else name.encode() * 100)
    aws(store, "s3", "sync", "--no-progress", tree, f"s3://{store.bucket}/tree")
    aws(store, "s3", "sync", "--no-progress", f"s3://{store.bucket}/tree", back)
    again = aws(store, "s3", "sync", "--no-progress", f"s3://{store.bucket}/tree", back)
    return {
        "back": {str(path.relative_to(back)): path.read_text() for path in sorted(back.rglob("*")) if path.is_file()},
        "again": again,
    }


def lists_moves_and_removes(store: Store) -> dict[str, object]:
    """ls, mv, rm and a ranged get."""
    one = store.scratch / "one"
    one.write_text("0123456789")
    aws(store, "s3", "cp", "--no-progress", one, f"s3://{store.bucket}/moved/one")
    aws(store, "s3", "mv", "--no-progress", f"s3://{store.bucket}/moved/one", f"s3://{store.bucket}/moved/two")
    part = store.scratch / "part"
    aws(store, "s3api", "get-object", "--bucket", store.bucket, "--key", "moved/two", "--range", "bytes=2-4", part)
    listed = aws(store, "s3", "ls", "--recursive", f"s3://{store.bucket}/moved/")
    aws(store, "s3", "rm", "--recursive", f"s3://{store.bucket}/moved/")
    left = aws(store, "s3api", "list-objects-v2", "--bucket", store.bucket, "--prefix", "moved/", "--query", "Contents")
    return {"listed": [line.split()[2:] for line in listed.splitlines()], "part": part.read_text(), "left": left}


CHECKS = (copies_up_and_down, synchronises_folders, lists_moves_and_removes)
