"""A client in a rack that does the reads of a plan over several connections, compares every byte, and reports.

The plan comes as one line of JSON on stdin. The client answers `ready`, and begins with the next line. One more line
ends a plan without an end. The client tries a failed read once more at the next endpoint, as a client of a cluster
would.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from urllib.parse import urlsplit

from real.lakes import Account
from real.signing import encode_path, signed_headers

from .objects import PIECE, Read, piece
from .plan_of_work import follow, run_side_by_side


@dataclass(frozen=True)
class Plan:
    """The reads of a client, and its endpoints; the client uses the first one while it answers."""

    endpoints: Sequence[str]
    access_key: str
    secret_key: str
    bucket: str
    reads: Sequence[Read]
    connections: int = 8
    """With it the client draws reads at random until it is stopped; without it, it does each read once, in order."""
    endless_seed: int | None = None
    timeout_s: float = 10
    """The pause of each connection after each read."""
    pause_s: float = 0
    """Whether the outcome has the time that each read took."""
    is_timed: bool = False
    """The job that each read names in `x-shoal-job`; if empty, none."""
    job: str = ""
    """The rate that all connections together do not pass, as a job that computes would; 0 for none."""
    bytes_per_second: float = 0

    def to_json(self) -> str:
        """Returns one line of JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(line: str) -> Plan:
        """Reads the output of `to_json`."""
        fields = json.loads(line)
        fields["reads"] = [Read(**read) for read in fields["reads"]]
        return Plan(**fields)


@dataclass
class Outcome:
    """The outcome of a plan. Times are the machine's monotonic seconds, the same in every namespace."""

    started_s: float = 0
    ended_s: float = 0
    reads: int = 0
    bytes: int = 0
    """The seconds of each read, in the order of their ends, if the plan asks for them."""
    times_s: list[float] = field(default_factory=list)
    """The number of reads for each value of `X-Cache`."""
    cache: Counter[str] = field(default_factory=Counter)
    """Reads that a second try healed, by the error of the first."""
    healed: Counter[str] = field(default_factory=Counter)
    """Reads that failed twice."""
    failed: list[str] = field(default_factory=list)
    """Reads that ended well with bytes that are not the object's."""
    wrong: list[str] = field(default_factory=list)

    def to_json(self) -> str:
        """Returns one line of JSON."""
        return json.dumps(vars(self))

    @staticmethod
    def from_json(line: str) -> Outcome:
        """Reads the output of `to_json`."""
        outcome = Outcome(**json.loads(line))
        outcome.cache, outcome.healed = Counter(outcome.cache), Counter(outcome.healed)
        return outcome

    @property
    def mbit_per_s(self) -> float:
        """Returns the throughput of bodies over all connections."""
        return self.bytes * 8e-6 / (self.ended_s - self.started_s)


class _Failed(Exception):
    """An attempt that a client tries again."""


class _WrongBytes(Exception):
    """The answer has other bytes than the object: a failure that no retry excuses."""


class _Connection:
    """One connection at a time, to the endpoint that answered last."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._account = Account(plan.access_key, plan.secret_key)
        self._endpoint = 0
        self._buffer = bytearray(PIECE)
        self._open: http.client.HTTPConnection | None = None

    def read(self, read: Read) -> str:
        """Reads and compares; returns the answer's `X-Cache`."""
        try:
            return self._read(read)
        except (OSError, http.client.HTTPException, _Failed) as error:
            self._close()
            self._endpoint = (self._endpoint + 1) % len(self._plan.endpoints)
            raise _Failed(f"{type(error).__name__}: {error}"[:160]) from error
        except _WrongBytes:
            self._close()
            raise

    def _read(self, read: Read) -> str:
        parts = urlsplit(self._plan.endpoints[self._endpoint])
        if self._open is None:
            self._open = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=self._plan.timeout_s)
        path = encode_path(self._plan.bucket, read.key)
        headers = signed_headers(self._account, "GET", parts.netloc, path)
        if read.range:
            headers["Range"] = read.range
        if self._plan.job:
            headers["x-shoal-job"] = self._plan.job
        self._open.request("GET", path, headers=headers)
        answer = self._open.getresponse()
        if answer.status not in (200, 206):
            raise _Failed(f"status {answer.status} {answer.read()[:120]!r}")
        self._compare(read, answer)
        return answer.headers.get("x-cache", "none")

    def _compare(self, read: Read, answer: http.client.HTTPResponse) -> None:
        have = 0
        while have < read.length:
            space = memoryview(self._buffer)[: min(PIECE, read.length - have)]
            got = answer.readinto(space)
            if got == 0:
                raise _Failed(f"ended after {have} of {read.length} bytes")
            # A bytearray compares by memcmp; a memoryview on the left would go byte by byte.
            if self._buffer[:got] != piece(read.key, read.first + have, got):
                raise _WrongBytes(f"{read} before byte {have + got}")
            have += got
        if answer.read(1):
            raise _WrongBytes(f"{read}: more bytes than asked for")

    def _close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


class _Client:
    """All connections and their common outcome."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._todo = self._draw()
        self._next_s = 0.0
        self._lock = threading.Lock()
        self.stopped = False
        self.outcome = Outcome()

    def run(self) -> None:
        """Reads until the plan is done or `stopped`."""
        self.outcome.started_s = time.monotonic()
        run_side_by_side([self._work] * self._plan.connections)
        self.outcome.ended_s = time.monotonic()

    def told(self) -> str:
        """Returns the outcome as JSON."""
        return self.outcome.to_json()

    def _draw(self) -> Iterator[Read]:
        if self._plan.endless_seed is None:
            yield from self._plan.reads
            return
        chance = random.Random(self._plan.endless_seed)
        while True:
            yield chance.choice(self._plan.reads)

    def _work(self) -> None:
        connection = _Connection(self._plan)
        while not self.stopped:
            with self._lock:
                read = next(self._todo, None)
                wait_s = self._turn(read) if read else 0
            if read is None:
                return
            time.sleep(wait_s)
            self._do(connection, read)
            time.sleep(self._plan.pause_s)

    def _turn(self, read: Read) -> float:
        """Returns the seconds until the read may begin. Time that was not used is lost: a job does not catch up."""
        if not self._plan.bytes_per_second:
            return 0
        now = time.monotonic()
        begins = max(now, self._next_s)
        self._next_s = begins + read.length / self._plan.bytes_per_second
        return begins - now

    def _do(self, connection: _Connection, read: Read) -> None:
        outcome, troubles = self.outcome, []
        began_s = time.monotonic()
        try:
            for _ in range(2):
                try:
                    cache = connection.read(read)
                    break
                except _Failed as trouble:
                    troubles.append(str(trouble))
            else:
                with self._lock:
                    outcome.failed.append(f"{read}: " + "; then ".join(troubles))
                return
        except _WrongBytes as wrong:
            with self._lock:
                outcome.wrong.append(str(wrong))
            return
        with self._lock:
            outcome.reads += 1
            if self._plan.is_timed:
                outcome.times_s.append(time.monotonic() - began_s)
            outcome.bytes += read.length
            outcome.cache[cache] += 1
            outcome.healed.update(troubles)


if __name__ == "__main__":
    follow(lambda line: _Client(Plan.from_json(line)))
