"""Work of others on this machine: how much of the processors it uses before and beside what is measured."""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence
from pathlib import Path

from bench.process_facts import cpu_seconds, machine_cpu_seconds


def before_others(priority: int) -> tuple[str, ...]:
    """Returns the prefix of a command whose session gets processors before others.

    Linux shares processors among sessions first, so that a nice value counts within a session only.
    """
    if not priority or not Path("/proc/self/autogroup").exists():
        return ()
    return ("sh", "-c", f'echo -{priority} > /proc/self/autogroup; exec "$0" "$@"')


def busy(seconds: float) -> float:
    """Returns the part of the processors' time that is used in the next seconds."""
    before, all_before = machine_cpu_seconds()
    time.sleep(seconds)
    after, all_after = machine_cpu_seconds()
    return (after - before) / (all_after - all_before)


class Others:
    """The processor time of all but these processes, this one, and the children that it waits for meanwhile."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self._began = self._times()

    def share(self) -> float:
        """Returns the part of the processors' time that other work has used until now."""
        own, used, whole = (now - before for now, before in zip(self._times(), self._began, strict=True))
        return max(0.0, used - own) / whole

    def _times(self) -> tuple[float, float, float]:
        usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        own = cpu_seconds(self._pids) + sum(usage.ru_utime + usage.ru_stime for usage in usages)
        return own, *machine_cpu_seconds()
