"""Cold GETs through an empty node, against the lake directly, and the bytes that the lake sends for them."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from real.node import Node

from .bed import BUCKET, GIB, KIB, MIB, Bed, Server
from .client import open_get, read, read_slowly
from .counting import CountingRelay
from .hot import require_clean
from .load import Get, generate
from .nginx import Nginx
from .process_facts import MemoryWatch, Peak, memory_of
from .report import Goal, Page, Row, Spread

READERS = 64
SMALL_OBJECTS = 2000
WARM_UP = [f"warm-up-{number}" for number in range(16)]
SLOW_READERS = 16
IDLE_CONNECTIONS = 900
SLOW_OBJECT, SLOW_RATE, SLOW_SECONDS = 64 * MIB, MIB, 8


@dataclass
class Timed:
    """Seconds that the lake, the node and a relay that keeps nothing took for the same in each round."""

    measure: str
    goal: Goal
    """The number of requests in a round."""
    requests: int = 1
    rounds: list[dict[str, float]] = field(default_factory=list)

    def ratios(self, server: str) -> Spread:
        """Returns the ratios of the server's throughput, or of its latency, to the lake's."""
        pairs = [(seconds["lake"], seconds[server]) for seconds in self.rounds]
        return Spread.of([lake / took if self.goal.at_least else took / lake for lake, took in pairs])

    def detail(self) -> str:
        """Describes the median time of each server, or its requests per second."""
        medians = {name: Spread.of([seconds[name] for seconds in self.rounds]).median for name in self.rounds[0]}
        if self.requests == 1:
            return ", ".join(f"{name} {seconds * 1e3:.1f} ms" for name, seconds in medians.items())
        return ", ".join(f"{name} {self.requests / seconds:.0f}/s" for name, seconds in medians.items())

    def add_to(self, page: Page, case: str) -> None:
        """Adds the node's row and the relay's, which shows the machine's limit for any server in front of a lake."""
        page.add(Row(case, self.measure, self.ratios("node"), self.goal, self.detail()))
        page.add(Row(case, "the same, nginx as a relay", self.ratios("relay"), None, "it keeps nothing"))


@dataclass(frozen=True)
class Cold:
    """The servers that every cold case needs. The lake of `counted` is behind a relay that counts bytes."""

    bed: Bed
    page: Page
    node: Node
    counted: Node
    counting: CountingRelay
    relay: Nginx
    rounds: int

    def run(self, large_bytes: int) -> Peak:
        """Measures all cases; returns the node's memory peak over them."""
        self.bed.put(WARM_UP, 4 * MIB)
        with MemoryPeaks() as memory:
            self._whole_object(memory)
            self._range_of_a_large_object(memory, large_bytes)
            self._many_readers(memory)
            self._many_small_objects(memory)
            self._slow_readers(memory)
            self._idle_connections(memory)
        return memory.peak

    def _whole_object(self, memory: MemoryPeaks) -> None:
        case = "cold 64 MiB, one reader"
        gets = self.bed.put((f"cold-64m-{number}" for number in range(self.rounds)), 64 * MIB)
        self._restart_warm(memory)
        timed = Timed("throughput to the lake's", Goal(0.95, at_least=True))
        for number, get in enumerate(gets):
            timed.rounds.append(self._read_in_turn(get, number))
        timed.add_to(self.page, case)
        memory.restart(self.counted)
        ratios = [self._lake_bytes(self._read_counted, get) / (64 * MIB) for get in gets]
        self.page.add(Row(case, "lake bytes", Spread.of(ratios), Goal(1.0), "times the object"))

    def _range_of_a_large_object(self, memory: MemoryPeaks, size: int) -> None:
        case = f"cold 4 MiB range of {size / GIB:g} GiB"
        (large,) = self.bed.put(["cold-large"], size)
        chance = random.Random(2)
        timed, lake_mib = Timed("latency to the lake's", Goal(1.2)), []
        for number in range(self.rounds):
            start = chance.randrange(size - 4 * MIB)
            get = Get(BUCKET, large.key, f"bytes={start}-{start + 4 * MIB - 1}")
            # The node's store is new each time: it must find out about the object, too.
            self._restart_warm(memory)
            timed.rounds.append(self._read_in_turn(get, number))
            memory.restart(self.counted)
            lake_mib.append(self._lake_bytes(self._read_counted, get) / MIB)
        timed.add_to(self.page, case)
        self.page.add(Row(case, "lake MiB", Spread.of(lake_mib), Goal(8.01), "heads included"))

    def _many_readers(self, memory: MemoryPeaks) -> None:
        gets = self.bed.put((f"shared-{number}" for number in range(min(3, self.rounds))), 64 * MIB)
        memory.restart(self.counted)
        ratios = [self._lake_bytes(self._read_together, get) / (64 * MIB) for get in gets]
        self.page.add(
            Row(f"{READERS} readers of one cold object", "lake bytes", Spread.of(ratios), Goal(1.0), "times 64 MiB")
        )

    def _read_together(self, get: Get) -> None:
        gate = threading.Barrier(READERS)

        def reader(_: int) -> None:
            gate.wait(30)
            self._read_counted(get)

        with ThreadPoolExecutor(READERS) as pool:
            list(pool.map(reader, range(READERS)))

    def _many_small_objects(self, memory: MemoryPeaks) -> None:
        gets = self.bed.put((f"cold-4k-{number}" for number in range(SMALL_OBJECTS)), 4 * KIB)
        timed = Timed("request rate to the lake's", Goal(0.8, at_least=True), SMALL_OBJECTS)
        for number in range(self.rounds):
            self._restart_warm(memory)
            timed.rounds.append(self._in_turn(number, lambda server: self._seconds_of_all(server, gets)))
        self.bed.verify(self._node, gets[::50])
        timed.add_to(self.page, f"{SMALL_OBJECTS} cold 4 KiB, 64 connections, no error")

    def _seconds_of_all(self, server: Server, gets: Sequence[Get]) -> float:
        load = generate(server.url, self.bed.account, gets, self.bed.scratch, connections=64, seconds=60, once=True)
        require_clean("cold 4 KiB", server, load)
        if load.requests != len(gets):
            raise RuntimeError(f"{server.name} answered {load.requests} of {len(gets)} requests")
        return load.seconds

    def _slow_readers(self, memory: MemoryPeaks) -> None:
        gets = self.bed.put((f"slow-{number}" for number in range(SLOW_READERS)), SLOW_OBJECT)
        memory.restart(self.node)
        for state in ("cold", "hot"):
            with MemoryWatch(self.node.pid) as watch, ThreadPoolExecutor(SLOW_READERS) as pool:
                list(
                    pool.map(
                        lambda get: read_slowly(self.node.url, self.bed.account, get, SLOW_RATE, SLOW_SECONDS), gets
                    )
                )
            self.page.note(
                f"Memory with {SLOW_READERS} readers of {state} 64 MiB objects at 1 MiB/s each: {watch.peak}."
            )
            if state == "cold":
                self.bed.verify(self._node, gets)

    def _idle_connections(self, memory: MemoryPeaks) -> None:
        """Clients that have read something and keep their connection."""
        (get,) = self.bed.put(["idle"], 4 * KIB)
        memory.restart(self.node)
        self.bed.verify(self._node, [get])
        before = memory_of(self.node.pid)
        connections = []
        for _ in range(IDLE_CONNECTIONS):
            connection, length, body = open_get(self.node.url, self.bed.account, get)
            while len(body) < length:
                body += connection.recv(length)
            connections.append(connection)
        grown = memory_of(self.node.pid).anonymous - before.anonymous
        for connection in connections:
            connection.close()
        self.page.note(f"{IDLE_CONNECTIONS} idle connections: {grown / IDLE_CONNECTIONS / KIB:.1f} KiB each.")

    @property
    def _node(self) -> Server:
        return Server("node", self.node.url, list)

    def _restart_warm(self, memory: MemoryPeaks) -> None:
        """Empties the node's store, and warms its process up as the lake's: the node reads objects and stores them."""
        memory.restart(self.node)
        self.bed.verify(self._node, (Get(BUCKET, key) for key in WARM_UP))
        self.node.settle()

    def _in_turn(self, turn: int, seconds: Callable[[Server], float]) -> dict[str, float]:
        """Returns each server's seconds. The order changes by turn; each starts when the node writes no more."""
        servers = [Server("lake", self.bed.lake.url, list), Server("relay", self.relay.url, list), self._node]
        first = turn % len(servers)
        took = {}
        for server in [*servers[first:], *servers[:first]]:
            took[server.name] = seconds(server)
            self.node.settle()
        return took

    def _read_in_turn(self, get: Get, turn: int) -> dict[str, float]:
        expected = self.bed.expected(get)
        return self._in_turn(turn, lambda server: read(server.url, self.bed.account, get, expected).last_byte)

    def _read_counted(self, get: Get) -> None:
        read(self.counted.url, self.bed.account, get, self.bed.expected(get))

    def _lake_bytes(self, action: Callable[..., object], *arguments: object) -> int:
        self.counting.take()
        action(*arguments)
        return self.counting.take()


class MemoryPeaks:
    """Watches nodes across their restarts."""

    def __init__(self) -> None:
        self.peak = Peak()
        self._watches: dict[int, MemoryWatch] = {}

    def __enter__(self) -> MemoryPeaks:
        return self

    def __exit__(self, *_: object) -> None:
        for watch in self._watches.values():
            self._finish(watch)

    def restart(self, node: Node) -> None:
        """Empties the node's store and watches its new process."""
        if node.pid in self._watches:
            self._finish(self._watches.pop(node.pid))
        node.restart_cold()
        self._watches[node.pid] = MemoryWatch(node.pid)
        self._watches[node.pid].__enter__()

    def _finish(self, watch: MemoryWatch) -> None:
        watch.__exit__()
        self.peak.include(watch.peak)
