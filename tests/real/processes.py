"""Processes this harness starts: on free loopback ports, awaited, and stopped by their own pid."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

_PATIENCE_S = 120
_TRIES, _BETWEEN_TRIES_S = 3, 5

# A socket with an abstract name for each port that was returned. Such names belong to the network namespace, so
# all harnesses in it see them, and the kernel frees them when this process ends.
_given: list[socket.socket] = []

_Result = TypeVar("_Result")


class StartError(RuntimeError):
    """A process did not come up; the message ends with the tail of its log."""


def free_port() -> int:
    """Returns a port of 127.0.0.1 that was free a moment ago, and that the kernel gives to no outgoing connection.

    No port is returned twice, not even to two harnesses: the first process to get it may not listen yet.
    """
    while True:
        port = random.randrange(10_000, 32_000)
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                claim.bind(f"\0shoal-port-{port}")
                probe.bind(("127.0.0.1", port))
            except OSError:
                claim.close()
                continue
        _given.append(claim)
        return port


class Process:
    """A child whose output goes to a log file."""

    def __init__(
        self,
        command: Sequence[str | Path],
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.log = log
        self.name = Path(command[0]).name
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            # The child has a session of its own: Ctrl-C reaches only this harness, which chooses the order of
            # stopping.
            self._child = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=None if env is None else {**os.environ, **env},
                cwd=cwd,
                start_new_session=True,
            )

    @classmethod
    def listening(cls, command: Sequence[str | Path], log: Path, port: int, timeout_s: float = 30) -> Process:
        """Starts a child and returns once it accepts connections on this port; stops it if it does not."""
        process = cls(command, log)
        try:
            process.wait_until(lambda: answers(port), timeout_s)
        except BaseException:
            process.stop()
            raise
        return process

    def pids(self) -> list[int]:
        """Returns the process ids of the child and of its children."""
        children = [path.read_text() for path in Path(f"/proc/{self.pid}/task").glob("*/children")]
        return [self.pid, *map(int, " ".join(children).split())]

    @property
    def pid(self) -> int:
        """Returns the process id, valid until `stop`."""
        return self._child.pid

    def wait_until(self, ready: Callable[[], bool], timeout_s: float) -> None:
        """Returns once `ready()` holds; raises `StartError` when the child dies or the time is over."""
        deadline = time.monotonic() + timeout_s
        while not ready():
            if self._child.poll() is not None:
                raise StartError(f"{self.name} ended with status {self._child.returncode}\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise StartError(f"{self.name} was not ready after {timeout_s:.0f} s\n{self.log_tail()}")
            time.sleep(0.05)

    def log_tail(self, lines: int = 20) -> str:
        """Returns the end of the child's output."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def stop(self, timeout_s: float = 20) -> None:
        """Asks the child to end, insists after a while, and reaps it. Safe to repeat."""
        if self._child.poll() is None:
            self._child.terminate()
            try:
                self._child.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()


def answers(port: int, address: str = "127.0.0.1") -> bool:
    """Returns whether a process accepts connections on this port."""
    try:
        with socket.create_connection((address, port), timeout=1):
            return True
    except OSError:
        return False


def run(command: Sequence[str | Path], env: Mapping[str, str] | None = None, timeout_s: float = 300) -> str:
    """Runs a command to its end and returns its stdout. Raises with its output if it fails."""
    done = subprocess.run(
        [str(part) for part in command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        env=None if env is None else {**os.environ, **env},
        timeout=timeout_s,
        check=False,
    )
    if done.returncode != 0:
        shown = " ".join(str(part) for part in command[:3])
        raise RuntimeError(f"`{shown} …` ended with status {done.returncode}: {(done.stdout + done.stderr).strip()}")
    return done.stdout


def tried_again(download: Callable[[], _Result], *failures: type[Exception]) -> _Result:
    """Returns the result of a download. Repeats it twice after these failures, which may be the network's."""
    for _ in range(_TRIES - 1):
        try:
            return download()
        except failures as failure:
            print(f"trying again: {failure}", file=sys.stderr, flush=True)
            time.sleep(_BETWEEN_TRIES_S)
    return download()


def await_that(what: str, holds: Callable[[], bool], timeout_s: float = _PATIENCE_S) -> None:
    """Waits until `holds()` returns true. Raises `TimeoutError`, which names the condition, after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while True:
        trouble: OSError | None = None
        try:
            if holds():
                return
        except OSError as error:
            # The node does not answer yet, or is frozen.
            trouble = error
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_s:.0f} s in vain: {what}") from trouble
        time.sleep(0.1)
