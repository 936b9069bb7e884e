"""A client in a rack that runs the stages of jobs, one after another, with readers that keep their connections.

The plan comes as one line of JSON on stdin, and the client answers `ready`. Each further line is a stage, and the
client answers it with one line when the stage is done. The end of stdin ends the client.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from urllib.parse import urlsplit

from net.fabric import within
from net.objects import PIECE, Read, contents, piece
from real.lakes import Account
from real.signing import encode_path, signed_headers

_TIMEOUT_S = 120


@dataclass(frozen=True)
class Readers:
    """The endpoint of the readers, and their number."""

    endpoint: str
    access_key: str
    secret_key: str
    bucket: str
    readers: int


@dataclass(frozen=True)
class Step:
    """The requests of a stage: the readers share the reads; then the stage computes, writes and removes objects."""

    reads: Sequence[Read] = ()
    compute_s: float = 0
    writes: dict[str, int] = field(default_factory=dict)
    removes: Sequence[str] = ()


@dataclass(frozen=True)
class Done:
    """The seconds of the reads and of the whole stage, and the bytes read for each value of `X-Cache`."""

    read_s: float
    seconds: float
    bytes: dict[str, int]


class Stages:
    """The client, from the side of the program that starts it."""

    def __init__(self, rack: int, readers: Readers) -> None:
        command = [*within(f"client-{rack}"), sys.executable, "-m", "testbed.stages"]
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self._ask(asdict(readers)) != "ready":
            raise RuntimeError("the readers did not understand their plan")

    def __enter__(self) -> Stages:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.communicate()

    def run(self, step: Step) -> Done:
        """Runs a stage to its end. An error of any request raises."""
        answer = self._ask(asdict(step))
        if not answer:
            raise RuntimeError("a request of a stage failed; the reason is on stderr")
        return Done(**json.loads(answer))

    def _ask(self, message: dict[str, object]) -> str:
        if self._child.stdin is None or self._child.stdout is None:
            raise RuntimeError("a client without pipes")
        self._child.stdin.write(json.dumps(message) + "\n")
        self._child.stdin.flush()
        return self._child.stdout.readline().strip()


class _Reader:
    """One connection, which stays open."""

    def __init__(self, plan: Readers) -> None:
        self._plan = plan
        self._account = Account(plan.access_key, plan.secret_key)
        self._host = urlsplit(plan.endpoint).netloc
        self._connection = http.client.HTTPConnection(self._host, timeout=_TIMEOUT_S)

    def read(self, read: Read) -> str:
        """Reads and compares; returns the answer's `X-Cache`."""
        body, cache = self._ask("GET", read.key, {"Range": read.range} if read.range else {}, b"", (200, 206))
        pieces = range(0, read.length, PIECE)
        right = (body[at : at + PIECE] == piece(read.key, read.first + at, len(body[at : at + PIECE])) for at in pieces)
        if len(body) != read.length or not all(right):
            raise RuntimeError(f"{read} has other bytes")
        return cache

    def write(self, key: str, size: int) -> None:
        """Writes an object."""
        self._ask("PUT", key, {}, bytes(contents(key, size)), (200,))

    def remove(self, key: str) -> None:
        """Removes an object."""
        self._ask("DELETE", key, {}, b"", (204,))

    def _ask(
        self, method: str, key: str, headers: dict[str, str], body: bytes, good: Sequence[int]
    ) -> tuple[bytes, str]:
        path = encode_path(self._plan.bucket, key)
        signed = signed_headers(self._account, method, self._host, path, headers=headers)
        self._connection.request(method, path, body or None, signed)
        answer = self._connection.getresponse()
        said = answer.read()
        if answer.status not in good:
            raise RuntimeError(f"{method} {key}: {answer.status} {said[:200]!r}")
        return said, answer.headers.get("x-cache", "none")


class _Client:
    """All readers."""

    def __init__(self, plan: Readers) -> None:
        self._plan, self._own = plan, threading.local()
        self._pool = ThreadPoolExecutor(plan.readers)

    def run(self, step: Step) -> Done:
        """Runs one stage."""
        began, counted = time.monotonic(), {}
        for read, cache in zip(step.reads, self._pool.map(self._read, step.reads), strict=True):
            counted[cache] = counted.get(cache, 0) + read.length
        read_s = time.monotonic() - began
        time.sleep(step.compute_s)
        list(self._pool.map(lambda item: self._mine().write(*item), step.writes.items()))
        list(self._pool.map(lambda key: self._mine().remove(key), step.removes))
        return Done(read_s, time.monotonic() - began, counted)

    def _read(self, read: Read) -> str:
        return self._mine().read(read)

    def _mine(self) -> _Reader:
        if not hasattr(self._own, "reader"):
            self._own.reader = _Reader(self._plan)
        reader: _Reader = self._own.reader
        return reader


def main() -> None:
    """Plan, stages, answers."""
    client = _Client(Readers(**json.loads(sys.stdin.readline())))
    print("ready", flush=True)
    for line in sys.stdin:
        fields = json.loads(line)
        fields["reads"] = [Read(**read) for read in fields["reads"]]
        print(json.dumps(asdict(client.run(Step(**fields)))), flush=True)


if __name__ == "__main__":
    main()
