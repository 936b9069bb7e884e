"""Compares this build with an older one: hot and cold reads and writes through, in turn, as ratios of the two."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import TypeVar

from real.node import Node
from real.wire import send

from . import hot
from .bed import BUCKET, KIB, MIB, Bed, Server, contents, require_ok
from .client import read
from .cold import SMALL_OBJECTS, WARM_UP
from .hot import require_clean
from .load import Get, generate
from .report import Page, Row, Spread

WRITES = 8
T = TypeVar("T")


def run(bed: Bed, page: Page, nodes: Mapping[str, Node], rounds: int, seconds: float) -> None:
    """Measures the nodes `this` and `before`; every figure of the page is the former's to the latter's."""
    comparison = _Comparison(bed, page, nodes, rounds)
    for case in hot.cases(bed):
        comparison.hot(case, seconds)
    comparison.cold()
    for size in (4 * KIB, 64 * MIB):
        comparison.write_through(size)


class _Comparison:
    def __init__(self, bed: Bed, page: Page, nodes: Mapping[str, Node], rounds: int) -> None:
        self._bed, self._page, self._nodes, self._rounds = bed, page, nodes, rounds

    def hot(self, case: hot.Case, seconds: float) -> None:
        servers = {name: Server(name, node.url, lambda node=node: [node.pid]) for name, node in self._nodes.items()}
        for server in servers.values():
            self._bed.verify(server, case.gets)
        samples = self._in_turn(lambda name, _: hot.sample(self._bed, case, servers[name], seconds))
        per, scale, unit = ("request", 1e6, "µs") if case.per_request else ("GiB", 1e3, "ms")
        rates = {name: [one.bytes_per_second for one in own] for name, own in samples.items()}
        self._add(case.name, "throughput", rates, 1 / MIB, "MiB/s")
        cpu = {name: [one.cpu for one in own] for name, own in samples.items()}
        self._add(case.name, f"CPU per {per}", cpu, scale, unit)

    def cold(self) -> None:
        """One large object, and many small ones, of which the node has none."""
        large = self._bed.put((f"before-64m-{number}" for number in range(self._rounds)), 64 * MIB)
        small = self._bed.put((f"before-4k-{number}" for number in range(SMALL_OBJECTS)), 4 * KIB)
        self._bed.put(WARM_UP, 4 * MIB)

        def read_large(name: str, turn: int) -> float:
            self._restart(name)
            get = large[turn]
            return read(self._nodes[name].url, self._bed.account, get, self._bed.expected(get)).last_byte

        def read_small(name: str, _: int) -> float:
            self._restart(name)
            server = Server(name, self._nodes[name].url, list)
            load = generate(
                server.url, self._bed.account, small, self._bed.scratch, connections=64, seconds=60, once=True
            )
            require_clean("cold 4 KiB", server, load)
            return load.seconds

        self._add("cold 64 MiB, one reader", "time", self._in_turn(read_large), 1e3, "ms")
        self._add(f"{SMALL_OBJECTS} cold 4 KiB, 64 connections", "time", self._in_turn(read_small), 1e3, "ms")

    def write_through(self, size: int) -> None:
        def write(name: str, turn: int) -> float:
            taken = []
            for number in range(WRITES):
                key = f"before-written-{size}-{name}-{turn}-{number}"
                body = bytes(contents(key, size))
                began = time.perf_counter()
                answer = send(
                    self._nodes[name].url,
                    self._bed.account,
                    "PUT",
                    BUCKET,
                    key,
                    headers={"x-shoal-write": "through"},
                    body=body,
                )
                taken.append(time.perf_counter() - began)
                require_ok(answer.status)
            self._nodes[name].settle()
            return median(taken)

        self._add(f"write {size // KIB} KiB through", "time", self._in_turn(write), 1e3, "ms")

    def _restart(self, name: str) -> None:
        """Empties the node's store, and warms up its process."""
        node = self._nodes[name]
        node.restart_cold()
        self._bed.verify(Server(name, node.url, list), (Get(BUCKET, key) for key in WARM_UP))
        node.settle()

    def _in_turn(self, measure: Callable[[str, int], T]) -> dict[str, list[T]]:
        """Returns the figures of each node, whose order alternates."""
        figures: dict[str, list[T]] = {name: [] for name in self._nodes}
        for turn in range(self._rounds):
            for name in list(self._nodes)[:: -1 if turn % 2 else 1]:
                figures[name].append(measure(name, turn))
        return figures

    def _add(self, case: str, measure: str, figures: Mapping[str, Sequence[float]], scale: float, unit: str) -> None:
        ratios = [now / then for now, then in zip(figures["this"], figures["before"], strict=True)]
        absolute = ", ".join(f"{name} {median(own) * scale:.1f}" for name, own in figures.items())
        detail = f"{absolute} {unit}"
        self._page.add(Row(case, f"{measure}, this build to that before", Spread.of(ratios), None, detail))
