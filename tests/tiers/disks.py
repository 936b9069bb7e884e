"""A tier's store loses disks while clients write: acknowledged writes last, reach the lake, and are whole."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from net.hand import value_of
from net.history import ABSENT, History
from real import tier
from real.cluster import NODES, Cluster
from real.lakes import Lake, TierStore
from real.lakes.base import TIER_DISKS, TIER_PARITY
from real.processes import await_that, run
from real.report import Difference
from real.wire import Answer, send

from .client import KINDS, Client, Outcome

BUCKET = "shoal"
# Below the first, objects go to the lake after a second. Below the second, they stay in the tier.
MOVING, KEPT, OTHER = "moving/", "kept/", "other/"
_WHOLE_S, _DEGRADED_S = 4, 15
# In this time a store rebalances, and a node tries a store again that did not answer.
_PATIENCE_S = 120
_FLUSH_S = 300
_LARGE = (8, 8 << 20)
_SMALL = (64, 256 << 10)
# Room for metadata, and for the ends of stripes.
_TOLERANCE = 0.05
_LINE = 32


@dataclass
class Story:
    """Three nodes, clients of theirs, and a store below them that can lose disks."""

    binary: Path
    cluster: Cluster
    lake: Lake
    store: TierStore
    seed: int
    clients: list[Client] = field(init=False)

    def __post_init__(self) -> None:
        self.clients = []
        self._more_clients()

    def chapters(self) -> list[tuple[str, Callable[[], str]]]:
        """Returns the titles of the chapters and their functions, in order. A chapter returns its figures."""
        lost = random.Random(self.seed).sample(range(TIER_DISKS), TIER_PARITY + 1)
        first, third = lost[:TIER_PARITY], lost[TIER_PARITY]
        return [
            ("large and small objects take the room that their code costs", self.measure),
            ("two of six disks go, and writes go on", lambda: self.lose_two(first)),
            ("nodes with empty caches read every object from four disks", self.read_kept),
            ("a third disk goes, and no name outside the tier suffers", lambda: self.lose_third(third)),
            ("the disks are back, and so are writes", lambda: self.recover(lost)),
            ("all that was acknowledged is there, and comes to the lake", self.conclude),
        ]

    def restart(self) -> None:
        """Restarts the nodes with empty caches, so that they read from the store."""
        rules = {"prefixes": [f"s3://{BUCKET}/{MOVING}"], "kept": [f"s3://{BUCKET}/{KEPT}"]}
        store, etcd = self.cluster.store, self.cluster.etcd
        self.cluster.restart(tier.tables(tier.Place.of(store, etcd), "1s", **rules, classes=self.store.classes))

    def measure(self) -> str:
        """Writes objects of both sizes; returns their bytes on disk."""
        await_that("the lake has a bucket", lambda: self._at_lake("PUT").status == 200)
        self.restart()
        before = self._settled()
        self._write_kept("large", *_LARGE)
        between = self._grown(before, 0, _LARGE[0] * _LARGE[1] * self.store.large_ratio)
        self._write_kept("small", *_SMALL)
        after = self._grown(between, 1, _SMALL[0] * _SMALL[1] * self.store.small_ratio)
        large, elsewhere = between[0] - before[0], between[1] - before[1]
        small = after[1] - between[1]
        ratios = {
            "large": (large / _LARGE[0] / _LARGE[1], self.store.large_ratio),
            "small": (small / _SMALL[0] / _SMALL[1], self.store.small_ratio),
        }
        told = ", ".join(f"{kind} objects take {found:.3f} of their bytes" for kind, (found, _) in ratios.items())
        if any(not wanted <= found <= wanted * (1 + _TOLERANCE) for found, wanted in ratios.values()):
            raise Difference(f"{told}, not {self.store.large_ratio} and {self.store.small_ratio}")
        if self.store.classes.large and (elsewhere, after[0]) != (0, between[0]):
            raise Difference(f"a size went to the other's place: {before}, {between}, {after}")
        for number in range(4):
            self._acknowledged(number, f"{KEPT}parts-{number}", "parts")
        return told

    def lose_two(self, disks: Sequence[int]) -> str:
        """Takes two disks away while all clients write."""
        with self._working():
            time.sleep(_WHOLE_S)
            for disk in disks:
                self.store.lose(disk)
            lost = time.monotonic()
            time.sleep(_DEGRADED_S)
            self._await_each_kind(lost)
        # Objects that are overwritten now have their bytes only on the disks that are left.
        for number in range(0, _LARGE[0], 2):
            self._acknowledged(number, f"{KEPT}large-{number}", "large")
        for number in range(0, _SMALL[0], 8):
            self._acknowledged(number, f"{KEPT}small-{number}", "small")
        self._judge_refusals()
        return _told(self._outcomes(lost))

    def read_kept(self) -> str:
        """Reads every object below `KEPT` at every node, while the lake has none of them."""
        self.restart()
        names = self._history().keys()
        keys = [key for key in names if key.startswith(KEPT)]
        at_lake = [key for key in keys if self._at_lake("GET", key).status != 404]
        if at_lake:
            raise Difference(f"the lake has {at_lake}, so that reads prove nothing")
        self._read(keys)
        return f"{len(keys)} names at {len(self.cluster.nodes)} nodes"

    def lose_third(self, disk: int) -> str:
        """Takes a third disk away, so that too few are left: refusals are clear, and other names are not affected."""
        self.store.lose(disk)
        with ThreadPoolExecutor(len(KINDS) * NODES) as pool:
            writes = [
                pool.submit(client.write, number, f"{KEPT}late-{kind}-{number}", kind)
                for kind in KINDS
                for number, client in enumerate(self._more_clients())
            ]
            others = self._write_elsewhere()
            outcomes = [write.result() for write in writes]
        impossible = [each for each in outcomes if each.kind != "small" and each.went == "back"]
        if impossible:
            raise Difference(f"acknowledged by three disks of six: {impossible}")
        self._judge_refusals()
        return f"{_told(outcomes)}; {others} names outside the rules written and read meanwhile"

    def recover(self, disks: Sequence[int]) -> str:
        """Gives the disks back, and waits until every node writes back again by itself."""
        for disk in disks:
            self.store.give_back(disk)
        began = time.monotonic()
        await_that("the store is whole", self.store.is_whole, _PATIENCE_S)
        for number in range(NODES):
            for kind in KINDS:
                self._acknowledged(number, f"{KEPT}again-{kind}-{number}", kind)
        return f"after {time.monotonic() - began:.0f} s"

    def conclude(self) -> str:
        """Reads every name, flushes, compares the lake with the reads, and judges the history."""
        self.restart()
        keys = self._history().keys()
        self._read(keys)
        node = self.cluster.nodes[0]
        run([self.binary, "flush", "--node", node.admin, *node.shown], timeout_s=_FLUSH_S)
        self._await_lake(keys)
        await_that("the tier is empty", lambda: self._dirty() == 0, _PATIENCE_S)
        self._read(keys, nodes=1)
        self._judge_refusals()
        history = self._history()
        if unexplained := history.unexplained():
            raise Difference(f"{len(unexplained)} reads: " + "\n".join(unexplained[:5]))
        acknowledged = [operation for operation in history.operations if operation.is_acknowledged]
        back = sum(operation.note == "back" for operation in acknowledged)
        return f"{len(keys)} names, {len(acknowledged)} changes acknowledged, {back} of them before the lake had them"

    def _write_kept(self, kind: str, count: int, size: int) -> None:
        def write(node: int) -> list[Outcome]:
            client = self.clients[node]
            # A value begins with a line of its own.
            return [
                client.write(node, f"{KEPT}{kind}-{number}", kind, size - _LINE) for number in range(node, count, NODES)
            ]

        with ThreadPoolExecutor(NODES) as pool:
            outcomes = [outcome for written in pool.map(write, range(NODES)) for outcome in written]
        if any(outcome.went != "back" for outcome in outcomes):
            raise Difference(f"not all was written back: {outcomes}")

    def _acknowledged(self, number: int, key: str, kind: str) -> None:
        """Writes a name until a node acknowledges the write before the lake has it."""
        node = number % NODES
        client = self.clients[node]
        await_that(f"{key} is written back", lambda: client.write(node, key, kind).went == "back", _PATIENCE_S)

    @contextmanager
    def _working(self) -> Iterator[None]:
        """All clients write and read inside this context."""
        stopped = threading.Event()
        threads = [
            threading.Thread(target=client.work, args=[MOVING, self.seed, stopped]) for client in self.clients[:NODES]
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stopped.set()
            for thread in threads:
                thread.join()

    def _await_each_kind(self, since_s: float) -> None:
        def goes_on() -> bool:
            return {each.kind for each in self._outcomes(since_s) if each.went == "back"} == {*KINDS}

        await_that("writes of every kind go on", goes_on, _PATIENCE_S)

    def _write_elsewhere(self) -> int:
        """Writes and reads outside the rules."""
        for node, client in enumerate(self._more_clients()):
            for kind in KINDS:
                key = f"{OTHER}{kind}-{node}"
                outcome = client.write(node, key, kind)
                if outcome.went != "around" or client.read(node, key) != client.operations[-2].value:
                    raise Difference(f"a name outside the rules suffers: {outcome}, {client.operations[-2:]}")
        return NODES * len(KINDS)

    def _read(self, keys: Sequence[str], nodes: int = NODES) -> None:
        """Reads every name at so many nodes, until they answer."""

        def read(reader: tuple[int, Client]) -> None:
            node, client = reader
            for number, key in enumerate(keys):
                if (number - node) % NODES < nodes:
                    await_that(f"{key} is read", lambda key=key: client.read(node, key) is not None, _PATIENCE_S)

        with ThreadPoolExecutor(NODES) as pool:
            list(pool.map(read, enumerate(self._more_clients())))

    def _await_lake(self, keys: Sequence[str]) -> None:
        """Waits until the lake has, for every name, the value that a node returned last."""
        reads = [operation for operation in self._history().operations if operation.is_read]
        said = {read.key: read.value for read in sorted(reads, key=lambda read: read.began_s)}
        missing = set(keys)

        def has_all() -> bool:
            missing.difference_update([key for key in missing if self._value_at_lake(key) == said[key]])
            return not missing

        try:
            await_that("the lake has everything", has_all, _PATIENCE_S)
        except TimeoutError as error:
            shown = [(key, said[key], self._value_at_lake(key)) for key in sorted(missing)[:3]]
            raise Difference(f"the lake does not have {len(missing)} names as they are: {shown}") from error

    def _value_at_lake(self, key: str) -> str:
        answer = self._at_lake("GET", key)
        if answer.status == 404:
            return ABSENT
        return value_of(answer.body) if answer.status == 200 else f"status {answer.status}"

    def _at_lake(self, method: str, key: str = "") -> Answer:
        return send(self.lake.url, self.lake.account, method, BUCKET, key)

    def _grown(self, before: tuple[int, int], place: int, least: float) -> tuple[int, int]:
        """Waits until a place has so many bytes more, as a busy store counts late, and returns what it settles at."""

        def counted() -> bool:
            return self.store.disk_bytes()[place] - before[place] >= least

        # The caller judges the bytes, and tells how many there are.
        with suppress(TimeoutError):
            await_that("the store counts what was written", counted, _PATIENCE_S)
        return self._settled()

    def _settled(self) -> tuple[int, int]:
        """Waits until the bytes on disk stay the same, and returns them. A store counts them only from time to time."""
        found, since = self.store.disk_bytes(), time.monotonic()
        while time.monotonic() - since < self.store.counts_each_s:
            time.sleep(1)
            if (now := self.store.disk_bytes()) != found:
                found, since = now, time.monotonic()
        return found

    def _dirty(self) -> int:
        tiers = [tier for node in self.cluster.nodes for tier in Cluster.write_back(node)["tiers"]]
        return sum(tier["objects"] + tier["removals"] for tier in tiers)

    def _history(self) -> History:
        return History([operation for client in self.clients for operation in client.operations])

    def _outcomes(self, since_s: float) -> list[Outcome]:
        return [each for client in self.clients for each in list(client.outcomes) if each.began_s > since_s]

    def _judge_refusals(self) -> None:
        unclear = [refusal for client in self.clients for refusal in client.unclear]
        if unclear:
            raise Difference(f"{len(unclear)} answers are neither a success nor a clear 503: {unclear[:3]}")

    def _more_clients(self) -> list[Client]:
        """Returns one new client for each node, with names of their own."""
        urls, first = [node.url for node in self.cluster.nodes], len(self.clients)
        fresh = [Client(f"client-{first + number}", urls, self.lake.account, BUCKET) for number in range(NODES)]
        self.clients += fresh
        return fresh


def _told(outcomes: Sequence[Outcome]) -> str:
    """Describes the counts of writes by kind and outcome, and the time of the slowest answer."""
    counts = Counter(f"{each.kind} {each.went or 'refused'}" for each in outcomes)
    slowest = max(each.seconds for each in outcomes)
    told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    return f"writes: {told}; the slowest took {slowest:.1f} s"
