"""A client in a rack that reads parts of inputs, passes data on through objects that die at once, and writes outputs.

The plan comes as one line of JSON on stdin; `ready` is answered, and work begins with the next line. The outcome is
one line on stdout.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from urllib.parse import urlsplit

from net.objects import PIECE, Read, contents, piece
from real.lakes import Account
from real.signing import encode_path, signed_headers


@dataclass(frozen=True)
class Task:
    """The requests of one mapper, in this order. A mapper leaves out objects without a byte."""

    read: Read
    """The object that the mapper writes, reads and removes."""
    between: str
    between_bytes: int
    output: str
    output_bytes: int


@dataclass(frozen=True)
class Tasks:
    """The tasks of a rack's mappers. Each mapper takes the next task."""

    endpoint: str
    access_key: str
    secret_key: str
    bucket: str
    tasks: Sequence[Task]
    mappers: int
    """Headers of the writes of intermediate objects, which die at once, and of all other writes."""
    between_headers: dict[str, str]
    output_headers: dict[str, str]

    def to_json(self) -> str:
        """Returns one line of JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(line: str) -> Tasks:
        """Reads the output of `to_json`."""
        fields = json.loads(line)
        fields["tasks"] = [Task(**{**task, "read": Read(**task["read"])}) for task in fields["tasks"]]
        return Tasks(**fields)


@dataclass
class Took:
    """Moments of the machine's monotonic clock, and seconds of all mappers in each of their steps."""

    started_s: float
    ended_s: float
    steps_s: dict[str, float]


class _Mapper:
    """One connection, which stays open."""

    def __init__(self, plan: Tasks) -> None:
        self._plan = plan
        self._account = Account(plan.access_key, plan.secret_key)
        self._host = urlsplit(plan.endpoint).netloc
        self._connection = http.client.HTTPConnection(self._host, timeout=120)
        self.steps_s: dict[str, float] = {}

    def work(self, task: Task) -> None:
        """Does all of it; anything that goes wrong ends everything."""
        plan = self._plan
        self._timed("input", self._read, task.read)
        if task.between_bytes:
            whole = Read(task.between, 0, task.between_bytes, task.between_bytes)
            self._timed("write between", self._write, whole, plan.between_headers)
            self._timed("read between", self._read, whole)
            self._timed("remove between", self._remove, task.between)
        if task.output_bytes:
            whole = Read(task.output, 0, task.output_bytes, task.output_bytes)
            self._timed("output", self._write, whole, plan.output_headers)

    def _timed(self, step: str, work: object, *arguments: object) -> None:
        began = time.monotonic()
        work(*arguments)  # type: ignore[operator]
        self.steps_s[step] = self.steps_s.get(step, 0.0) + time.monotonic() - began

    def _read(self, read: Read) -> None:
        body = self._ask("GET", read.key, {"Range": read.range} if read.range else {}, b"", (200, 206))
        pieces = range(0, read.length, PIECE)
        right = (body[at : at + PIECE] == piece(read.key, read.first + at, len(body[at : at + PIECE])) for at in pieces)
        if len(body) != read.length or not all(right):
            raise RuntimeError(f"{read} has other bytes")

    def _write(self, whole: Read, headers: dict[str, str]) -> None:
        self._ask("PUT", whole.key, headers, bytes(contents(whole.key, whole.size)), (200,))

    def _remove(self, key: str) -> None:
        self._ask("DELETE", key, {}, b"", (204,))

    def _ask(self, method: str, key: str, headers: dict[str, str], body: bytes, good: Sequence[int]) -> bytes:
        path = encode_path(self._plan.bucket, key)
        signed = signed_headers(self._account, method, self._host, path, headers=headers)
        self._connection.request(method, path, body or None, signed)
        answer = self._connection.getresponse()
        said = answer.read()
        # A write through says so or, where the cache has no room for it, why not.
        is_as_asked = headers.get("x-shoal-write") != "back" or answer.headers.get("x-shoal-write") == "back"
        if answer.status not in good or not is_as_asked:
            raise RuntimeError(f"{method} {key}: {answer.status} {answer.headers} {said[:200]!r}")
        return said


def main() -> None:
    """Plan, go, outcome."""
    plan = Tasks.from_json(sys.stdin.readline())
    print("ready", flush=True)
    sys.stdin.readline()
    own = threading.local()
    mappers: list[_Mapper] = []

    def work(task: Task) -> None:
        if not hasattr(own, "mapper"):
            own.mapper = _Mapper(plan)
            mappers.append(own.mapper)
        own.mapper.work(task)

    started = time.monotonic()
    with ThreadPoolExecutor(plan.mappers) as pool:
        for done in [pool.submit(work, task) for task in plan.tasks]:
            done.result()
    steps: dict[str, float] = {}
    for mapper in mappers:
        for step, seconds in mapper.steps_s.items():
            steps[step] = steps.get(step, 0.0) + seconds
    print(json.dumps(asdict(Took(started, time.monotonic(), steps))), flush=True)


if __name__ == "__main__":
    main()
