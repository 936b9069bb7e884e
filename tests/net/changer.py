"""A client in a rack that writes, copies, removes and reads names through any node, and remembers all of it.

The plan comes as one line of JSON on stdin. The client answers `ready`, and begins with the next line. It ends with one
more line, or when it has read every name of `read` once in each way. It writes the history as one line to stdout.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial

from real.lakes import Account

from .cluster import BACK
from .hand import Hand
from .history import ABSENT, IF_ABSENT, READS, History, Operation, if_is
from .plan_of_work import follow, run_side_by_side

_SIZES = (0, 900, 70_000, 400_000)
_READS_AND_WRITES = ("GET", "HEAD", "LIST", "PUT", "PUT", "DELETE", "COPY", "IF-ABSENT", "IF-IS")
# versitygw may carry out a DELETE between the check of If-Match and the PUT, and that deletion is lost. Without a tier,
# the lake alone orders the changes, so clients make no such PUTs to names that they share.
_WITHOUT_TIER = tuple(kind for kind in _READS_AND_WRITES if kind != "IF-IS")
# What becomes of names when there are too many.
_ENDS = ("DELETE", "DELETE", "PUT")
# The pause keeps the number of names small enough to read them again at the end, at each node.
_PAUSE_S = 0.1
# A read at the end waits until the node has recovered from a fault.
_PATIENCE_S = 40
_SHARED = 6
# Clients share other names after a while: more operations on a name make the search for an order longer.
_SHARED_S = 6


@dataclass(frozen=True)
class Plan:
    """The work of a client: URLs of all nodes, the client's rack, and the account."""

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
    """How PUTs go past the tiers, one of these by chance; without it the rules of the nodes decide."""
    modes: Sequence[str] = ()
    """The sizes of objects, one of these by chance."""
    sizes: Sequence[int] = _SIZES
    """Each worker removes or overwrites the oldest of its own names once it has more than these; 0 for never."""
    names_max: int = 0

    def to_json(self) -> str:
        """Returns one line of JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(line: str) -> Plan:
        """Reads the output of `to_json`."""
        fields = json.loads(line)
        fields["nodes"] = {int(rack): url for rack, url in fields["nodes"].items()}
        return Plan(**fields)


class _Worker:
    """Makes one request at a time."""

    def __init__(self, plan: Plan, number: int, history: History) -> None:
        self._plan = plan
        self._name = f"{plan.rack}-{number}"
        self._chance = random.Random(f"{plan.seed} {self._name}")
        self._history = history
        account = Account(plan.access_key, plan.secret_key)
        self._hand = Hand(plan.nodes, account, plan.bucket, history, plan.timeout_s)
        self._written = 0
        """The value that this worker read or wrote last, for each name that it works on."""
        self._known: dict[str, str] = {}
        """Its own names, if there may be too many, the oldest one first."""
        self._own: deque[str] = deque()

    def change(self) -> None:
        """Makes some requests to a name of its own, or a few to a name that all clients share."""
        self._known.clear()
        if self._chance.random() < 0.3:
            keys = _shared(self._plan.seed)
            key = self._chance.choice(keys)
            if self._chance.random() < 0.1:
                self._hand.list(keys[0][:-1], keys, self._any_node())
                return
            self._act(key, "GET")
            kinds = _WITHOUT_TIER if self._plan.modes else _READS_AND_WRITES
            self._act(key, self._chance.choice(kinds))
            return
        key = f"{BACK}{self._plan.seed}-{self._name}-{self._written}."
        for kind in ("PUT", *self._chance.choices(_READS_AND_WRITES, k=self._chance.randrange(6))):
            if not self._act(key, kind):
                # Another write would hide the outcome of this one.
                return
        if self._plan.names_max:
            self._own.append(key)
            if len(self._own) > self._plan.names_max:
                self._act(self._own.popleft(), self._chance.choice(_ENDS))

    def read_at_last(self, key: str) -> None:
        """Reads at the rack's own node in each way, until there is an answer."""
        deadline = time.monotonic() + _PATIENCE_S
        for kind in READS:
            while not self._hand.read(key, self._plan.rack, kind):
                if time.monotonic() > deadline:
                    silence = Operation(key, kind, "no answer", deadline, deadline, self._plan.rack)
                    self._history.operations.append(silence)
                    return
                time.sleep(0.5)

    def _act(self, key: str, kind: str) -> bool:
        """Makes a request, and returns whether the node answered."""
        time.sleep(self._chance.uniform(0, 2 * _PAUSE_S))
        if kind in READS:
            # The node of another rack has to know the value as well.
            answered = self._hand.read(key, self._any_node(), kind)
        else:
            node = self._plan.rack if self._chance.random() < 0.7 else self._any_node()
            answered = self._write(key, kind, node)
        if answered:
            self._remember(key)
        return answered

    def _write(self, key: str, kind: str, node: int) -> bool:
        known = self._known.get(key, ABSENT)
        if kind == "DELETE":
            return self._hand.delete(key, node)
        if kind == "COPY" and known != ABSENT:
            self._written += 1
            return self._hand.copy(key, known, f"{key}copy-{self._name}-{self._written}.", node)
        self._written += 1
        name = f"{self._name}-{self._written}-{self._chance.choice(self._plan.sizes)}"
        condition = {"IF-ABSENT": IF_ABSENT, "IF-IS": if_is(known) if known else IF_ABSENT}.get(kind, "")
        headers = {"x-shoal-write": self._chance.choice(self._plan.modes)} if self._plan.modes else None
        return self._hand.put(key, name, node, condition, headers)

    def _remember(self, key: str) -> None:
        of_key = (each for each in reversed(self._history.operations[-20:]) if each.key == key)
        last = next((each for each in of_key if each.answered and not each.refused), None)
        if last is not None:
            self._known[key] = last.value

    def _any_node(self) -> int:
        return self._chance.choice(list(self._plan.nodes))


def _shared(seed: int) -> list[str]:
    """Returns the names that all clients share now."""
    now = int(time.monotonic() / _SHARED_S)
    return [f"{BACK}{seed}-shared-{now}-{number}" for number in range(_SHARED)]


class _Client:
    """All workers, and their common history."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._keys = iter(plan.read)
        self._lock = threading.Lock()
        self.stopped = False
        self.history = History([])

    def run(self) -> None:
        """Works until all names of the plan are read, or `stopped`."""
        workers = [_Worker(self._plan, number, self.history) for number in range(self._plan.connections)]
        run_side_by_side([partial(self._work, worker) for worker in workers])

    def told(self) -> str:
        """Returns the history as JSON."""
        return self.history.to_json()

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


if __name__ == "__main__":
    follow(lambda line: _Client(Plan.from_json(line)))
