"""A client in a rack that writes, removes and reads names through any node, and remembers what it did and saw.

The plan comes as one line of JSON on stdin; `ready` is answered, and work begins with the next line. It ends with one
more line, or when every name of `read` was read once. The history is one line on stdout.
"""

from __future__ import annotations

import http.client
import json
import math
import random
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from real.lakes import Account
from real.wire import Answer, send

from .cluster import BACK
from .history import ABSENT, History, Operation
from .objects import contents

_SIZES = (0, 900, 70_000, 400_000)
# So that the names can be read again in the end, at each node.
_PAUSE_S = 0.1
# A read at the end waits for what a fault has left behind.
_PATIENCE_S = 40
_SHARED = 6


@dataclass(frozen=True)
class Plan:
    """Where a client works: URLs of all nodes, and the rack that it is in."""

    nodes: dict[int, str]
    rack: int
    access_key: str
    secret_key: str
    bucket: str
    seed: int
    connections: int = 3
    timeout_s: float = 5
    """Names to read at the rack's own node, and nothing else."""
    read: Sequence[str] = ()

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(line: str) -> Plan:
        """What `to_json` wrote."""
        fields = json.loads(line)
        fields["nodes"] = {int(rack): url for rack, url in fields["nodes"].items()}
        return Plan(**fields)


class _Worker:
    """One request at a time."""

    def __init__(self, plan: Plan, number: int, history: History) -> None:
        self._plan = plan
        self._name = f"{plan.rack}-{number}"
        self._chance = random.Random(f"{plan.seed} {self._name}")
        self._history = history
        self._written = 0

    def change(self) -> None:
        """Some requests to a name of its own, or one to a name that all clients share."""
        if self._chance.random() < 0.3:
            key = f"{BACK}shared-{self._chance.randrange(_SHARED)}"
            self._act(key, self._chance.choice(("PUT", "PUT", "DELETE", "GET", "GET")))
            return
        key = f"{BACK}{self._name}-{self._written}"
        for kind in ("PUT", *self._chance.choices(("GET", "PUT", "DELETE"), k=self._chance.randrange(5))):
            if not self._act(key, kind):
                # Another write would hide what became of this one.
                return

    def read_at_last(self, key: str) -> None:
        """Reads at the rack's own node until there is an answer."""
        deadline = time.monotonic() + _PATIENCE_S
        while not self._request(key, "GET", self._plan.rack, ABSENT):
            if time.monotonic() > deadline:
                self._history.operations.append(Operation(key, "GET", "no answer", deadline, deadline, self._plan.rack))
                return
            time.sleep(0.5)

    def _act(self, key: str, kind: str) -> bool:
        """Whether there was an answer."""
        time.sleep(self._chance.uniform(0, 2 * _PAUSE_S))
        # The node of another rack has to know it as well.
        others = list(self._plan.nodes)
        node = self._plan.rack if kind != "GET" and self._chance.random() < 0.7 else self._chance.choice(others)
        value = ABSENT
        if kind == "PUT":
            self._written += 1
            value = f"{self._name}-{self._written}-{self._chance.choice(_SIZES)}"
        return self._request(key, kind, node, value)

    def _request(self, key: str, kind: str, node: int, value: str) -> bool:
        began = time.monotonic()
        try:
            answer = self._send(key, kind, node, body(value) if kind == "PUT" else b"")
        except ConnectionRefusedError:
            # Nobody has heard of it.
            return False
        except (OSError, http.client.HTTPException) as error:
            answer = Answer(0, {}, f"{type(error).__name__}: {error}".encode())
        ended = time.monotonic()
        note = answer.headers.get("x-shoal-write", "")
        answered = True
        if kind == "GET" and answer.status == 200:
            value = value_of(answer.body)
        elif kind == "GET" and answer.status != 404:
            return False
        elif answer.status not in (200, 204, 404):
            note, ended, answered = f"{answer.status} {answer.body[:200]!r}", math.inf, False
        self._history.operations.append(Operation(key, kind, value, began, ended, node, note))
        return answered

    def _send(self, key: str, kind: str, node: int, body: bytes) -> Answer:
        plan = self._plan
        account = Account(plan.access_key, plan.secret_key)
        return send(plan.nodes[node], account, kind, plan.bucket, key, body=body, timeout_s=plan.timeout_s)


def body(value: str) -> bytes:
    """The bytes of a value: itself and noise, as many as it says."""
    return f"{value}\n".encode() + contents(value, int(value.rsplit("-", 1)[1]))


def value_of(read: bytes) -> str:
    """Inverse of `body`; bytes that no value has are one that no client wrote."""
    value = read.split(b"\n", 1)[0][:60].decode(errors="replace")
    try:
        return value if body(value) == read else f"{len(read)} bytes, not those of {value}"
    except (ValueError, IndexError):
        return f"{len(read)} bytes of nothing: {value}"


class _Client:
    """All workers, and their common history."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._keys = iter(plan.read)
        self._lock = threading.Lock()
        self.stopped = False
        self.history = History([])

    def run(self) -> None:
        """Until all is read, or `stopped`."""
        workers = [_Worker(self._plan, number, self.history) for number in range(self._plan.connections)]
        threads = [threading.Thread(target=self._work, args=[worker]) for worker in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _work(self, worker: _Worker) -> None:
        if self._plan.read:
            for key in self._rest():
                worker.read_at_last(key)
            return
        while not self.stopped:
            worker.change()

    def _rest(self) -> Iterator[str]:
        while True:
            with self._lock:
                key = next(self._keys, None)
            if key is None:
                return
            yield key


def main() -> None:
    """Plan, go, history."""
    client = _Client(Plan.from_json(sys.stdin.readline()))
    print("ready", flush=True)
    sys.stdin.readline()

    def stop() -> None:
        sys.stdin.readline()
        client.stopped = True

    threading.Thread(target=stop, daemon=True).start()
    client.run()
    print(client.history.to_json(), flush=True)


if __name__ == "__main__":
    main()
