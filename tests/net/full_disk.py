"""The disk below a tier in a folder is full, though the tier's capacity is not used up; then it has room again."""

from __future__ import annotations

import json
import os
import subprocess
import time
from contextlib import suppress

from real.node import Node
from real.processes import await_that, run
from real.wire import send

from .cluster import BACK, BUCKET
from .hand import Hand, body
from .loopback import LoopbackCluster
from .settled import counted, judge
from .stories import Broken, CannotBeTold

_NODE = 1
_DISK_BYTES, _FILLED_BYTES = 96 << 20, 32 << 20
# The registry is on the same disk, and refuses what is new while less than this is free.
_RESERVED_BYTES = 24 << 20
_LARGE, _WRITES_MAX = 2_000_000, 40
_TABLES = """
[write]
age = "1h"

[[tier]]
name = "near"
folder = "{folder}"
capacity = "8GiB"

[[write.rule]]
prefix = "s3://{bucket}/{prefix}"
mode = "back"
"""


class FolderTierCluster(LoopbackCluster):
    """One node with a tier in a folder, which is a small file system of its own."""

    def restart(self) -> None:
        """Kills the node and starts it again."""
        self.kill(_NODE)
        self.nodes[_NODE].stop()
        self.nodes[_NODE].start()
        await_that("the node knows its tier", lambda: "tiers" in self.write_back(), 30)

    def write_back(self) -> dict[str, object]:
        """Returns the part of the node's `/status` about its tier."""
        page: dict[str, object] = json.loads(self.nodes[_NODE].ask("/status"))["write_back"]
        return page

    def free_bytes(self) -> int:
        """Returns the room on the disk of the tier."""
        disk = os.statvfs(self._disk)
        return disk.f_bavail * disk.f_frsize

    def fill(self, size: int = _DISK_BYTES) -> None:
        """Has another program take room of the disk, or all that there is."""
        with suppress(OSError), self._filler.open("wb", buffering=0) as file:
            for _ in range(size >> 16):
                file.write(bytes(1 << 16))

    def take_away(self) -> None:
        """Gives that room back."""
        self._filler.unlink()

    def _build(self) -> None:
        self._disk, self._image = self._folder / "disk", self._folder / "disk.img"
        self._filler = self._disk / "filler"
        self._disk.mkdir()
        self._image.touch()
        os.truncate(self._image, _DISK_BYTES)
        # A tier refuses a folder in memory.
        try:
            run(["mkfs.ext4", "-q", "-m", "0", self._image])
            run(["mount", "-o", "loop", self._image, self._disk])
        except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
            raise CannotBeTold(f"a file cannot be mounted: {error}") from error
        self._stack.callback(run, ["umount", self._disk])
        self.nodes[_NODE] = Node(
            self.binary,
            self._folder / "node",
            self.proxy.door(_NODE, "lake", self.lake.url),
            [self.account],
            capacity="64MiB",
            block_size="256KiB",
            tables=_TABLES.format(folder=self._disk / "tier", bucket=BUCKET, prefix=BACK),
            environment={"SHOAL_LAKE_ANSWER_TIMEOUT": "1s"},
        )
        self.nodes[_NODE].start()


def tell(cluster: FolderTierCluster, seed: int) -> str:
    """Writes until the disk is full, works on, kills the node, and makes room in both ways: by a flush, by a disk."""
    hand = cluster.hand(timeout_s=20)
    keys = [f"{BACK}{seed}-disk-{number}." for number in range(_WRITES_MAX)]
    await_that("the node writes back", lambda: _is_back(hand, keys[0]), 30)
    cluster.fill(_FILLED_BYTES)
    refusals = _write_until_full(cluster, hand, keys[1:])
    _works_on(cluster, hand, keys)
    # What is full empties by itself.
    _flush(cluster)
    await_that("a flush makes room", lambda: _is_back(hand, keys[0]), 60)
    refusals += _write_until_full(cluster, hand, keys)
    cluster.take_away()
    await_that("the disk has room again", lambda: _is_back(hand, keys[0]), 60)
    _write(hand, keys)
    cluster.fill()
    _works_on(cluster, hand, keys)
    cluster.restart()
    _works_on(cluster, hand, keys)
    cluster.take_away()
    await_that("the node writes back again", lambda: _is_back(hand, keys[1]), 60)
    _reads(hand, keys)
    _flush(cluster)
    last = {each.key: each.value for each in hand.history.operations if each.is_read}
    await_that("the lake has all", lambda: all(cluster.at_lake(key) == value for key, value in last.items()), 60)
    _reads(hand, keys)
    return f"{refusals} writes refused with 503; " + counted(hand.history)


def _write_until_full(cluster: FolderTierCluster, hand: Hand, keys: list[str]) -> int:
    """Writes until three writes in a row are refused, each with an answer that says why. Returns how many were."""
    refused = in_a_row = 0
    for key in keys:
        failed = len(hand.history.failures)
        if hand.put(key, _name(key, _LARGE), _NODE):
            in_a_row = 0
            continue
        _is_clear(hand.history.failures[failed:])
        refused, in_a_row = refused + 1, in_a_row + 1
        if in_a_row == 3:
            if cluster.free_bytes() > _RESERVED_BYTES + 2 * _LARGE:
                raise Broken(f"writes are refused with {cluster.free_bytes()} bytes free")
            return refused
    raise Broken(f"{len(keys)} writes did not fill the disk: {cluster.free_bytes()} bytes are free")


def _write(hand: Hand, keys: list[str]) -> None:
    for key in keys[:10]:
        if not hand.put(key, _name(key, _LARGE), _NODE):
            raise Broken(f"a write is refused with room on the disk: {hand.history.failures[-1]}")


def _works_on(cluster: FolderTierCluster, hand: Hand, keys: list[str]) -> None:
    """Reads all, and has changes of every kind succeed or be refused clearly, while the disk is full."""
    _reads(hand, keys)
    failed = len(hand.history.failures)
    hand.put(keys[1], _name(keys[1], _LARGE), _NODE)
    hand.put(keys[2], _name(keys[2], 900), _NODE)
    hand.delete(keys[3], _NODE)
    _is_clear(hand.history.failures[failed:])
    begun = send(cluster.nodes[_NODE].url, cluster.account, "POST", BUCKET, keys[4], query={"uploads": ""})
    if begun.status not in (200, 503):
        raise Broken(f"an upload is answered {begun.status} {begun.body[:200]!r}")
    written = send(cluster.nodes[_NODE].url, cluster.account, "PUT", BUCKET, "other/name", body=body("other-900"))
    if written.status != 200:
        raise Broken(f"a name without a tier is answered {written.status} {written.body[:200]!r}")
    _reads(hand, keys)


def _reads(hand: Hand, keys: list[str]) -> None:
    for key in keys:
        await_that(f"{key} is read", lambda: hand.read(key, _NODE), 30)  # noqa: B023
    judge(hand.history)


def _is_clear(failures: list[str]) -> None:
    unclear = [failure for failure in failures if ": 503 " not in failure]
    if unclear:
        raise Broken(f"{len(unclear)} requests were not refused with 503: {unclear[:3]}")


def _is_back(hand: Hand, key: str) -> bool:
    hand.put(key, _name(key, 900), _NODE)
    return hand.history.operations[-1].note == "back"


def _name(key: str, size: int) -> str:
    return f"{key}-{time.monotonic_ns()}-{size}"


def _flush(cluster: FolderTierCluster) -> None:
    node = cluster.nodes[_NODE]
    run([cluster.binary, "flush", "--node", node.admin, *node.shown])
