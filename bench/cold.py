"""Cold GETs: through a node that holds nothing, against the lake directly; and what the lake had to send for it."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from real.node import Node

from .bed import BUCKET, GIB, KIB, MIB, Bed, Server
from .client import open_get, read, read_slowly
from .counting import CountingRelay
from .hot import require_clean
from .load import Get, generate
from .process_facts import MemoryWatch, Peak, memory_of
from .report import Goal, Page, Row, Spread

READERS = 64
SMALL_OBJECTS = 2000
SLOW_READERS = 16
IDLE_CONNECTIONS = 900
SLOW_OBJECT, SLOW_RATE, SLOW_SECONDS = 64 * MIB, MIB, 8


@dataclass(frozen=True)
class Cold:
    """What every cold case needs. `counted` is a node whose lake is behind a relay that counts bytes."""

    bed: Bed
    page: Page
    node: Node
    counted: Node
    relay: CountingRelay
    rounds: int

    def run(self, large_bytes: int) -> Peak:
        """All cases; returns the node's memory peak over them."""
        with MemoryPeaks() as memory:
            self._whole_object(memory)
            self._range_of_a_large_object(memory, large_bytes)
            self._many_readers(memory)
            self._many_small_objects(memory)
            self._slow_readers(memory)
            self._idle_connections(memory)
        return memory.peak

    def _whole_object(self, memory: MemoryPeaks) -> None:
        gets = self.bed.put((f"cold-64m-{number}" for number in range(self.rounds)), 64 * MIB)
        ratios, lake_bytes, seconds = [], [], []
        memory.restart(self.node)
        memory.restart(self.counted)
        for number, get in enumerate(gets):
            expected = self.bed.expected(get)
            direct, through = self._read_both(get, expected, lake_first=number % 2 == 0)
            ratios.append(direct / through)
            seconds.append((direct, through))
            lake_bytes.append(self._lake_bytes(self._read_counted, get, expected) / len(expected))
        direct, through = (Spread.of([pair[side] * 1e3 for pair in seconds]).median for side in (0, 1))
        detail = f"lake {direct:.0f} ms, node {through:.0f} ms"
        self.page.add(
            Row(
                "cold 64 MiB, one reader",
                "throughput to the lake's",
                Spread.of(ratios),
                Goal(0.95, at_least=True),
                detail,
            )
        )
        self.page.add(
            Row("cold 64 MiB, one reader", "lake bytes", Spread.of(lake_bytes), Goal(1.0), "times the object")
        )

    def _range_of_a_large_object(self, memory: MemoryPeaks, size: int) -> None:
        (large,) = self.bed.put(["cold-large"], size)
        chance = random.Random(2)
        ratios, lake_mib, milliseconds = [], [], []
        for number in range(self.rounds):
            start = chance.randrange(size - 4 * MIB)
            get = Get(BUCKET, large.key, f"bytes={start}-{start + 4 * MIB - 1}")
            expected = self.bed.expected(get)
            # The node is new each time: it must find out about the object, too.
            memory.restart(self.node)
            memory.restart(self.counted)
            direct, through = self._read_both(get, expected, lake_first=number % 2 == 0)
            ratios.append(through / direct)
            milliseconds.append((direct * 1e3, through * 1e3))
            lake_mib.append(self._lake_bytes(self._read_counted, get, expected) / MIB)
        case = f"cold 4 MiB range of {size / GIB:g} GiB"
        direct, through = (Spread.of([pair[side] for pair in milliseconds]).median for side in (0, 1))
        self.page.add(
            Row(
                case,
                "latency to the lake's",
                Spread.of(ratios),
                Goal(1.2),
                f"lake {direct:.1f} ms, node {through:.1f} ms",
            )
        )
        self.page.add(Row(case, "lake MiB", Spread.of(lake_mib), Goal(8.01), "heads included"))

    def _many_readers(self, memory: MemoryPeaks) -> None:
        gets = self.bed.put((f"shared-{number}" for number in range(min(3, self.rounds))), 64 * MIB)
        memory.restart(self.counted)
        ratios = [self._lake_bytes(self._read_together, get) / len(self.bed.expected(get)) for get in gets]
        self.page.add(
            Row(f"{READERS} readers of one cold object", "lake bytes", Spread.of(ratios), Goal(1.0), "times 64 MiB")
        )

    def _read_together(self, get: Get) -> None:
        expected, gate = self.bed.expected(get), threading.Barrier(READERS)

        def reader(_: int) -> None:
            gate.wait(30)
            self._read_counted(get, expected)

        with ThreadPoolExecutor(READERS) as pool:
            list(pool.map(reader, range(READERS)))

    def _many_small_objects(self, memory: MemoryPeaks) -> None:
        gets = self.bed.put((f"cold-4k-{number}" for number in range(SMALL_OBJECTS)), 4 * KIB)
        ratios, rates = [], []
        for _ in range(self.rounds):
            memory.restart(self.node)
            direct = self._rate(Server("lake", self.bed.lake.url, list), gets)
            through = self._rate(Server("node", self.node.url, list), gets)
            ratios.append(through / direct)
            rates.append((direct, through))
        self.bed.verify(Server("node", self.node.url, list), gets[::50])
        direct, through = (Spread.of([pair[side] for pair in rates]).median for side in (0, 1))
        detail = f"lake {direct:.0f}/s, node {through:.0f}/s, no error"
        case = f"{SMALL_OBJECTS} cold 4 KiB, 64 connections"
        self.page.add(Row(case, "request rate to the lake's", Spread.of(ratios), Goal(0.8, at_least=True), detail))

    def _rate(self, server: Server, gets: Sequence[Get]) -> float:
        load = generate(server.url, self.bed.account, gets, self.bed.scratch, connections=64, seconds=60, once=True)
        require_clean("cold 4 KiB", server, load)
        if load.requests != len(gets):
            raise RuntimeError(f"{server.name} answered {load.requests} of {len(gets)} requests")
        return load.requests / load.seconds

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
                self.bed.verify(Server("node", self.node.url, list), gets)

    def _idle_connections(self, memory: MemoryPeaks) -> None:
        """Clients that have read something and keep their connection."""
        (get,) = self.bed.put(["idle"], 4 * KIB)
        memory.restart(self.node)
        self.bed.verify(Server("node", self.node.url, list), [get])
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

    def _read_both(self, get: Get, expected: memoryview, lake_first: bool) -> tuple[float, float]:
        """Seconds at the lake and through the node; neither always follows the other."""
        urls = (self.bed.lake.url, self.node.url)
        times = [read(url, self.bed.account, get, expected).last_byte for url in (urls if lake_first else urls[::-1])]
        direct, through = times if lake_first else times[::-1]
        return direct, through

    def _read_counted(self, get: Get, expected: memoryview) -> None:
        read(self.counted.url, self.bed.account, get, expected)

    def _lake_bytes(self, action: Callable[..., object], *arguments: object) -> int:
        self.relay.take()
        action(*arguments)
        return self.relay.take()


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
