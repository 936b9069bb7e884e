"""Clients that arrive by chance at a fixed rate: JSON of `Arrivals` on stdin, JSON of `Times` on stdout.

With a file of JSON of `Steady` as argument, one that uses the lake at a steady rate, until it is ended.
"""

from __future__ import annotations

import http.client
import itertools
import json
import random
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from net.objects import contents
from real.lakes import Account
from real.signing import UNSIGNED_PAYLOAD, encode_path, signed_headers

# More clients than ever wait at a time.
_CLIENTS = 64


@dataclass(frozen=True)
class Arrivals:
    """Requests of one size, each of an object of its own below `prefix`."""

    url: str
    access_key: str
    secret_key: str
    method: str
    bucket: str
    prefix: str
    size: int
    """Requests a second, on average."""
    rate: float
    seconds: float
    seed: int

    def to_json(self) -> str:
        """Returns the plan as JSON."""
        return json.dumps(asdict(self))

    def moments(self) -> list[float]:
        """Returns the seconds from the start at which requests arrive."""
        chance = random.Random(self.seed)
        moments, now = [], 0.0
        while (now := now + chance.expovariate(self.rate)) < self.seconds:
            moments.append(now)
        return moments


@dataclass(frozen=True)
class Steady:
    """Requests for these objects, one after the other, again and again."""

    url: str
    access_key: str
    secret_key: str
    method: str
    bucket: str
    keys: list[str]
    size: int
    bytes_per_second: float

    def to_json(self) -> str:
        """Returns the plan as JSON."""
        return json.dumps(asdict(self))


@dataclass
class Times:
    """How long each request took from its arrival on, and when all began and ended."""

    started_s: float = 0
    ended_s: float = 0
    bytes: int = 0
    seconds: list[float] = field(default_factory=list)

    @staticmethod
    def from_json(text: str) -> Times:
        """Reads the output of this program."""
        return Times(**json.loads(text))

    def percentile(self, percent: float) -> float:
        """Returns the time within which so many percent of the requests ended."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


class _Clients:
    def __init__(self, plan: Arrivals | Steady) -> None:
        self._plan = plan
        self._account = Account(plan.access_key, plan.secret_key)
        self._local = threading.local()
        self._body = contents("body", plan.size) if plan.method == "PUT" else b""

    def request(self, key: str, due: float) -> float:
        """Waits until the request is due, sends it, reads its answer, and returns the seconds since it was due."""
        time.sleep(max(0, due - time.monotonic()))
        parts = urlsplit(self._plan.url)
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = http.client.HTTPConnection(parts.hostname or "", parts.port)
        path = encode_path(self._plan.bucket, key)
        payload = {"payload": UNSIGNED_PAYLOAD} if self._body else {}
        headers = signed_headers(self._account, self._plan.method, parts.netloc, path, **payload)
        connection.request(self._plan.method, path, body=self._body or None, headers=headers)
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200 or (not self._body and len(body) != self._plan.size):
            raise RuntimeError(f"{answer.status} with {len(body)} bytes to {key}: {body[:200]!r}")
        return time.monotonic() - due


def keep_busy(plan: Steady) -> None:
    """Keeps the rate until the process is ended. A lake that is slower is not asked more than once at a time."""
    clients, due = _Clients(plan), time.monotonic()
    for number in itertools.count():
        clients.request(plan.keys[number % len(plan.keys)], due)
        due = max(due + plan.size / plan.bytes_per_second, time.monotonic())


def main() -> None:
    """Runs the plan."""
    if sys.argv[1:]:
        keep_busy(Steady(**json.loads(Path(sys.argv[1]).read_text())))
    plan = Arrivals(**json.loads(sys.stdin.read()))
    clients, moments = _Clients(plan), plan.moments()
    with ThreadPoolExecutor(_CLIENTS) as pool:
        started = time.monotonic() + 0.1
        arrivals = [(f"{plan.prefix}{number}", started + at) for number, at in enumerate(moments)]
        requests = [pool.submit(clients.request, key, due) for key, due in arrivals]
        seconds = [request.result() for request in requests]
    ended = time.monotonic()
    print(json.dumps(vars(Times(started, ended, plan.size * len(moments), seconds))))


if __name__ == "__main__":
    main()
