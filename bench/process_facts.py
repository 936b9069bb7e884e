"""Facts of the kernel about a process: CPU time and memory."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pids: Iterable[int]) -> float:
    """Returns the user and system time of all threads, also of those that ended."""
    ticks = 0
    for pid in pids:
        # The name in parentheses may hold spaces; the fields after it do not.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS_PER_SECOND


def machine_cpu_seconds() -> tuple[float, float]:
    """Returns the busy seconds and all seconds of all processors since the machine started."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    idle = fields[3] + fields[4]
    return (sum(fields) - idle) / _TICKS_PER_SECOND, sum(fields) / _TICKS_PER_SECOND


@dataclass
class Peak:
    """Highest values seen, in bytes. `anonymous` is heap and stacks, `file` is mapped page cache."""

    resident: int = 0
    anonymous: int = 0
    file: int = 0

    def include(self, other: Peak) -> None:
        """Takes the higher of each."""
        self.resident = max(self.resident, other.resident)
        self.anonymous = max(self.anonymous, other.anonymous)
        self.file = max(self.file, other.file)

    def __str__(self) -> str:
        return (
            f"{self.resident / MIB:.0f} MiB resident at most, {self.anonymous / MIB:.0f} MiB of it anonymous at most, "
            f"{self.file / MIB:.0f} MiB mapped files at most"
        )


def memory_of(pid: int) -> Peak:
    """Returns the memory of a process now."""
    text = Path(f"/proc/{pid}/status").read_text()
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    kib = (int(fields.get(name, "0").split()[0]) for name in ("VmRSS", "RssAnon", "RssFile"))
    return Peak(*(size << 10 for size in kib))


class MemoryWatch:
    """Samples a process ten times a second while its block runs."""

    def __init__(self, pid: int) -> None:
        self.peak = Peak()
        self._pid, self._done = pid, threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._done.wait(0.1):
            try:
                self.peak.include(memory_of(self._pid))
            except FileNotFoundError:
                return
