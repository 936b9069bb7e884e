"""A process that works after a plan: the plan on stdin, a word to begin, a word to end, a line on stdout."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Protocol


class Work(Protocol):
    """Work that goes on until it is done or `stopped`."""

    stopped: bool

    def run(self) -> None:
        """Does the work."""

    def told(self) -> str:
        """Returns the outcome in one line."""


def follow(understood: Callable[[str], Work]) -> None:
    """Reads the plan and answers `ready`. Begins the work at the next line, and stops it at one more."""
    work = understood(sys.stdin.readline())
    print("ready", flush=True)
    sys.stdin.readline()

    def stop() -> None:
        sys.stdin.readline()
        work.stopped = True

    threading.Thread(target=stop, daemon=True).start()
    work.run()
    print(work.told(), flush=True)


def run_side_by_side(workers: list[Callable[[], None]]) -> None:
    """Runs each worker in a thread of its own, until all are done."""
    threads = [threading.Thread(target=worker) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
