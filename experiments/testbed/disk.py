"""The disk of a lake: a file with a file system in it, so that the kernel counts the requests of the lake alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from itertools import pairwise
from pathlib import Path

from real.lakes import LakeUnavailable
from real.processes import run

_SECTOR_BYTES = 512
_SAMPLE_S = 1.0


@dataclass(frozen=True)
class Counts:
    """The kernel's counters of a device, the same as in `/proc/diskstats`."""

    """Milliseconds with a request under way, by a clock of the kernel that may have 4 ms between its ticks."""
    busy_ms: int
    """Milliseconds of all requests, one added to the other."""
    requests_ms: int
    reads: int
    writes: int
    flushes: int
    written_bytes: int

    def since(self, earlier: Counts) -> Counts:
        """Returns what came between."""
        return Counts(*(now - then for now, then in zip(astuple(self), astuple(earlier), strict=True)))


class Disk:
    """A file system, mounted for this process and its children; it is gone with their namespace."""

    def __init__(self, image: Path, at: Path, size: int) -> None:
        image.parent.mkdir(parents=True, exist_ok=True)
        at.mkdir(parents=True)
        with image.open("wb") as file:
            file.truncate(size)
        try:
            # Nothing is left to be written in the background, and the kernel keeps no second copy of the bytes.
            run(["mkfs.ext4", "-q", "-i", "65536", "-E", "lazy_itable_init=0,lazy_journal_init=0", image])
            self._device = Path(run(["losetup", "--find", "--show", "--direct-io=on", image]).strip())
            try:
                run(["mount", self._device, at])
            finally:
                # From now on the device lives as long as the mount.
                run(["losetup", "--detach", self._device])
        except RuntimeError as reason:
            raise LakeUnavailable(f"a disk of its own needs root, losetup and ext4: {reason}") from reason
        self._image, self._at = image, at

    def counts(self) -> Counts:
        """Returns the counters up to now."""
        fields = [int(field) for field in Path(f"/sys/block/{self._device.name}/stat").read_text().split()]
        reads, _, _, read_ms, writes, _, sectors, write_ms, _, busy_ms = fields[:10]
        flushes, flush_ms = fields[15:17]
        return Counts(busy_ms, read_ms + write_ms + flush_ms, reads, writes, flushes, sectors * _SECTOR_BYTES)

    def sync(self) -> None:
        """Writes everything that the kernel still has in memory."""
        run(["sync", "--file-system", self._at])

    def remove(self) -> None:
        """Gives the room back."""
        run(["umount", self._at])
        self._image.unlink()


class Watch:
    """Samples how busy a disk is, once a second, while its block runs."""

    def __init__(self, disk: Disk) -> None:
        self._disk, self._done = disk, threading.Event()
        self._samples: list[tuple[float, int]] = []
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def busy(self, began_s: float, ended_s: float) -> Sequence[float]:
        """Returns percents of each second between these moments of the monotonic clock."""
        return [
            (now_ms - then_ms) / 10 / (now_s - then_s)
            for (then_s, then_ms), (now_s, now_ms) in pairwise(self._samples)
            if then_s >= began_s and now_s <= ended_s
        ]

    def _sample(self) -> None:
        while True:
            self._samples.append((time.monotonic(), self._disk.counts().busy_ms))
            if self._done.wait(_SAMPLE_S):
                return
