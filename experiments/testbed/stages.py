"""A client in a rack that runs the stages of jobs with readers that keep their connections.

The plan comes as one line of JSON on stdin, and the client answers `ready`. Each further line is a stage with a number,
and the client answers it with one line when the stage is done. Stages that run at once have the readers in turn. The
end of stdin ends the client.
"""

from __future__ import annotations

import http.client
import itertools
import json
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TextIO
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
    """The client, from the side of the program that starts it. Threads may share it."""

    def __init__(self, rack: int, readers: Readers) -> None:
        command = [*within(f"client-{rack}"), sys.executable, "-m", "testbed.stages"]
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self._child.stdin is None or self._child.stdout is None:
            raise RuntimeError("a client without pipes")
        self._input: TextIO = self._child.stdin
        self._lock, self._numbers = threading.Lock(), itertools.count()
        self._open: dict[int, Future[Done]] = {}
        self._tell(asdict(readers))
        if self._child.stdout.readline().strip() != "ready":
            raise RuntimeError("the readers did not understand their plan")
        self._listener = threading.Thread(target=self._listen, args=[self._child.stdout])
        self._listener.start()

    def __enter__(self) -> Stages:
        return self

    def __exit__(self, *_: object) -> None:
        self._input.close()
        self._listener.join()
        self._child.wait()

    def run(self, step: Step) -> Done:
        """Runs a stage to its end. An error of any request raises."""
        return self.begin(step).result()

    def begin(self, step: Step) -> Future[Done]:
        """Begins a stage beside those that run; an error of any request is its result."""
        done: Future[Done] = Future()
        with self._lock:
            number = next(self._numbers)
            self._open[number] = done
            self._tell({"number": number, "step": asdict(step)})
        return done

    def _tell(self, message: dict[str, object]) -> None:
        self._input.write(json.dumps(message) + "\n")
        self._input.flush()

    def _listen(self, output: TextIO) -> None:
        for line in output:
            answer = json.loads(line)
            with self._lock:
                done = self._open.pop(answer["number"])
            if answer["error"]:
                done.set_exception(RuntimeError(answer["error"]))
            else:
                done.set_result(Done(**answer["done"]))
        with self._lock:
            left = list(self._open.values())
        for done in left:
            done.set_exception(RuntimeError("the client has ended; the reason is on stderr"))


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

    def write(self, key: str, size: int) -> str:
        """Writes an object; returns the answer's `X-Cache`."""
        return self._ask("PUT", key, {}, bytes(contents(key, size)), (200,))[1]

    def remove(self, key: str) -> str:
        """Removes an object; returns the answer's `X-Cache`."""
        return self._ask("DELETE", key, {}, b"", (204,))[1]

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


# A request, and its answer's `X-Cache`.
_Request = tuple[Callable[[_Reader], str], Future[str]]


class _Crew:
    """The readers. They take requests from all open lists in turn, so that no stage waits for the end of another."""

    def __init__(self, plan: Readers) -> None:
        self._lists: deque[deque[_Request]] = deque()
        self._is_work = threading.Condition()
        for _ in range(plan.readers):
            threading.Thread(target=self._serve, args=[_Reader(plan)], daemon=True).start()

    def do(self, requests: Sequence[Callable[[_Reader], str]]) -> list[str]:
        """Sends all requests, and waits for their answers. The first error raises."""
        answers: list[Future[str]] = [Future() for _ in requests]
        if requests:
            with self._is_work:
                self._lists.append(deque(zip(requests, answers, strict=True)))
                self._is_work.notify_all()
        return [answer.result() for answer in answers]

    def _serve(self, reader: _Reader) -> None:
        while True:
            with self._is_work:
                self._is_work.wait_for(lambda: self._lists)
                requests = self._lists.popleft()
                request, answer = requests.popleft()
                if requests:
                    self._lists.append(requests)
            try:
                answer.set_result(request(reader))
            except Exception as error:
                answer.set_exception(error)


def _run(crew: _Crew, step: Step) -> Done:
    began, counted = time.monotonic(), Counter[str]()
    caches = crew.do([partial(_Reader.read, read=read) for read in step.reads])
    read_s = time.monotonic() - began
    for read, cache in zip(step.reads, caches, strict=True):
        counted[cache] += read.length
    time.sleep(step.compute_s)
    crew.do([partial(_Reader.write, key=key, size=size) for key, size in step.writes.items()])
    crew.do([partial(_Reader.remove, key=key) for key in step.removes])
    return Done(read_s, time.monotonic() - began, dict(counted))


def _answer(crew: _Crew, number: int, step: Step, output: threading.Lock) -> None:
    answer: dict[str, object] = {"number": number, "error": ""}
    try:
        answer["done"] = asdict(_run(crew, step))
    except Exception as error:
        answer["error"] = repr(error)
    with output:
        print(json.dumps(answer), flush=True)


def main() -> None:
    """Plan, stages, answers."""
    crew = _Crew(Readers(**json.loads(sys.stdin.readline())))
    print("ready", flush=True)
    running: list[threading.Thread] = []
    output = threading.Lock()
    for line in sys.stdin:
        message = json.loads(line)
        fields = message["step"]
        fields["reads"] = [Read(**read) for read in fields["reads"]]
        running = [stage for stage in running if stage.is_alive()]
        running.append(threading.Thread(target=_answer, args=[crew, message["number"], Step(**fields), output]))
        running[-1].start()
    for stage in running:
        stage.join()


if __name__ == "__main__":
    main()
