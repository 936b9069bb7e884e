"""rclone: trees kept equal, by sizes, times in the metadata and MD5 sums; moves that the store makes."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from ..lakes import REGION
from ..processes import run
from ..report import Difference
from ..store import Store, content
from .s5cmd import contents

MIB = 1 << 20
RCLONE = Path(sys.executable).with_name("rclone")
# rclone keeps the times of files in the metadata of objects, so that they have to be the same in every run.
WRITTEN_AT = 1_700_000_000


def rclone(store: Store, *arguments: str | Path) -> str:
    """Runs `rclone` against the store, without retries."""
    settings = {
        "TYPE": "s3",
        "PROVIDER": "Other",
        "ACCESS_KEY_ID": store.account.access_key,
        "SECRET_ACCESS_KEY": store.account.secret_key,
        "REGION": REGION,
        "ENDPOINT": store.url,
        "FORCE_PATH_STYLE": "true",
        # Rclone would make the bucket before each copy. A node that writes back would then bring the bucket
        # to the lake.
        "NO_CHECK_BUCKET": "true",
        # Large objects are several parts, also when the store copies them.
        "UPLOAD_CUTOFF": "5Mi",
        "CHUNK_SIZE": "5Mi",
        "COPY_CUTOFF": "6Mi",
    }
    environment = {f"RCLONE_CONFIG_STORE_{name}": value for name, value in settings.items()}
    # Rclone does not start with a CA bundle that is named here.
    environment |= {"AWS_CA_BUNDLE": "", "RCLONE_CONFIG": str(store.scratch / "absent")}
    command = [RCLONE, "--retries", "1", "--low-level-retries", "1", "--stats", "0", *arguments]
    return run(command, env=environment, timeout_s=120)


def at(store: Store, path: str = "") -> str:
    """Returns rclone's name of a path in the bucket."""
    return f"store:{store.bucket}/{path}"


def write(path: Path, data: bytes) -> None:
    """A file with the time that all have."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (WRITTEN_AT, WRITTEN_AT))


def listing(store: Store, path: str) -> list[tuple[str, int, str, str]]:
    """Names, sizes, times and MD5 sums as rclone sees them."""
    entries = json.loads(rclone(store, "lsjson", "--recursive", "--files-only", "--hash", at(store, path)))
    return sorted(
        (entry["Path"], entry["Size"], entry["ModTime"], entry.get("Hashes", {}).get("md5", "")) for entry in entries
    )


def copies_and_checks(store: Store) -> dict[str, object]:
    """A tree up, checked by sums and by bytes, and down again."""
    tree, back = store.scratch / "rc-tree", store.scratch / "rc-back"
    for number in range(20):
        write(tree / "sub" / f"{number:02} ü", content(1000 + number, seed=20))
    write(tree / "empty", b"")
    write(tree / "large", content(23 * MIB + 5, seed=21))
    rclone(store, "copy", tree, at(store, "rc"))
    rclone(store, "check", tree, at(store, "rc"))
    rclone(store, "check", "--download", tree, at(store, "rc"))
    for _ in range(2):
        rclone(store, "copy", "--ignore-times", "--multi-thread-cutoff", "8Mi", at(store, "rc"), back)
        if contents(back) != contents(tree):
            raise Difference("the tree came back changed")
    return {"listed": listing(store, "rc")}


def synchronises(store: Store) -> dict[str, object]:
    """A tree that changes is brought up again: one file other, one new, one gone; then there is nothing to do."""
    tree = store.scratch / "rc-sync"
    for name in ("changes", "goes", "stays"):
        write(tree / name, name.encode() * 100)
    rclone(store, "sync", tree, at(store, "rc-sync"))
    first = listing(store, "rc-sync")
    write(tree / "changes", b"something else")
    write(tree / "comes", b"new")
    (tree / "goes").unlink()
    rclone(store, "sync", tree, at(store, "rc-sync"))
    rclone(store, "check", "--download", tree, at(store, "rc-sync"))
    again = rclone(store, "sync", "--dry-run", "--combined", "-", tree, at(store, "rc-sync"))
    return {"first": first, "second": listing(store, "rc-sync"), "again": sorted(again.splitlines())}


def moves_on_the_server(store: Store) -> dict[str, object]:
    """Files and folders renamed inside the store: copies, in parts if they are large, and removals."""
    tree = store.scratch / "rc-moves"
    write(tree / "small", b"moved")
    write(tree / "large", content(17 * MIB, seed=22))
    rclone(store, "copy", tree, at(store, "rc-moves/one"))
    rclone(store, "moveto", at(store, "rc-moves/one/small"), at(store, "rc-moves/one/renamed"))
    rclone(store, "move", at(store, "rc-moves/one"), at(store, "rc-moves/two"))
    rclone(store, "copyto", at(store, "rc-moves/two/large"), at(store, "rc-moves/three/large"))
    rclone(store, "check", "--download", "--one-way", at(store, "rc-moves/three"), at(store, "rc-moves/two"))
    rclone(store, "move", at(store, "rc-moves/three"), store.scratch / "rc-moved-down")
    down = contents(store.scratch / "rc-moved-down")
    return {"listed": listing(store, "rc-moves"), "down": down}


def streams_and_removes(store: Store) -> dict[str, object]:
    """A part of an object printed, names below a prefix removed, and all of them.

    It comes first: a purge lists versions, and where a node writes back that brings the whole bucket to the lake.
    """
    tree = store.scratch / "rc-removes"
    for name in ("a/1", "a/2", "b/1"):
        write(tree / name, f"this is {name}".encode())
    rclone(store, "copy", tree, at(store, "rc-removes"))
    printed = rclone(store, "cat", "--offset", "5", "--count", "2", at(store, "rc-removes/a/1"))
    rclone(store, "delete", at(store, "rc-removes/a"))
    left = listing(store, "rc-removes")
    rclone(store, "purge", at(store, "rc-removes"))
    return {"printed": printed, "left": left}


CHECKS = (streams_and_removes, copies_and_checks, synchronises, moves_on_the_server)
