"""A client that sends writes and reads of whole objects at their times, and compares each byte that it reads.

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

from net.objects import contents
from real.lakes import Account
from real.signing import encode_path, signed_headers


@dataclass(frozen=True)
class Step:
    """One request, so many seconds after the start."""

    at_s: float
    method: str
    key: str
    size: int


@dataclass(frozen=True)
class Replay:
    """The requests in their order. Each connection takes the next one when its time has come."""

    endpoint: str
    access_key: str
    secret_key: str
    bucket: str
    steps: Sequence[Step]
    connections: int
    """The mode of the writes, which the answers must name; empty for a lake without a node."""
    mode: str

    def to_json(self) -> str:
        """Returns one line of JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(line: str) -> Replay:
        """Reads the output of `to_json`."""
        fields = json.loads(line)
        fields["steps"] = [Step(**step) for step in fields["steps"]]
        return Replay(**fields)


@dataclass(frozen=True)
class Replayed:
    """Moments of the machine's monotonic clock, and of each request in turn its seconds and how late it began."""

    started_s: float
    ended_s: float
    seconds: Sequence[float]
    late_s: Sequence[float]


class _Connection:
    """One connection, which stays open."""

    def __init__(self, plan: Replay) -> None:
        self._plan = plan
        self._account = Account(plan.access_key, plan.secret_key)
        self._host = urlsplit(plan.endpoint).netloc
        self._connection = http.client.HTTPConnection(self._host, timeout=120)

    def send(self, step: Step, body: bytes) -> float:
        """Returns the seconds from the request to the last byte; anything that goes wrong ends everything."""
        plan = self._plan
        path = encode_path(plan.bucket, step.key)
        headers = {"x-shoal-write": plan.mode} if step.method == "PUT" and plan.mode else {}
        headers = signed_headers(self._account, step.method, self._host, path, headers=headers)
        began = time.monotonic()
        self._connection.request(step.method, path, body if step.method == "PUT" else None, headers)
        answer = self._connection.getresponse()
        said = answer.read()
        seconds = time.monotonic() - began
        if answer.status != 200:
            raise RuntimeError(f"{step.method} {step.key}: {answer.status} {answer.headers} {said[:200]!r}")
        # An answer has no `x-shoal-write` if the node wrote around the cache, as it does by default.
        if step.method == "PUT" and plan.mode and answer.headers.get("x-shoal-write", "around") != plan.mode:
            raise RuntimeError(f"{step.key} was to go {plan.mode}: {answer.headers}")
        if step.method == "GET" and said != body:
            raise RuntimeError(f"{step.key} has other bytes")
        return seconds


def main() -> None:
    """Plan, go, outcome."""
    plan = Replay.from_json(sys.stdin.readline())
    print("ready", flush=True)
    sys.stdin.readline()
    own = threading.local()
    started = time.monotonic()

    def work(step: Step) -> tuple[float, float]:
        body = contents(step.key, step.size)
        if not hasattr(own, "connection"):
            own.connection = _Connection(plan)
        time.sleep(max(0.0, started + step.at_s - time.monotonic()))
        late_s = time.monotonic() - started - step.at_s
        return own.connection.send(step, body), late_s

    with ThreadPoolExecutor(plan.connections) as pool:
        done = list(pool.map(work, plan.steps))
    seconds, late_s = zip(*done, strict=True)
    print(json.dumps(asdict(Replayed(started, time.monotonic(), seconds, late_s))), flush=True)


if __name__ == "__main__":
    main()
