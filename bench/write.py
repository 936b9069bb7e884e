"""Writes through the cache against writes around it on one node, and the lake bytes of a first read after them."""

from __future__ import annotations

import time
from dataclasses import dataclass

from real.node import Node
from real.wire import send

from .bed import BUCKET, KIB, MIB, Bed, contents, require_ok
from .client import read
from .counting import CountingRelay
from .load import Get
from .report import Goal, Page, Row, Spread

# Size of an object, and how many are written one after the other in a round.
CASES = ((64 * MIB, 2), (4 * MIB, 8), (64 * KIB, 64))
# The pause after a write, so that the work that it leaves does not slow down the next one.
PAUSE_SECONDS = 0.3


@dataclass(frozen=True)
class Write:
    """The servers that every case needs. The lake of `counted` is behind a relay that counts bytes."""

    bed: Bed
    page: Page
    node: Node
    counted: Node
    relay: CountingRelay
    rounds: int

    def run(self) -> None:
        """Measures all cases."""
        for size, count in CASES:
            self._time(size, count)
        self._first_read()

    def _time(self, size: int, count: int) -> None:
        self._seconds("around", "warm", size, count)
        self._seconds("through", "warm", size, count)
        pairs = []
        for number in range(self.rounds):
            modes = ("around", "through") if number % 2 == 0 else ("through", "around")
            seconds = {mode: self._seconds(mode, str(number), size, count) for mode in modes}
            pairs.append((seconds["around"], seconds["through"]))
        around, through = (Spread.of([pair[side] / count * 1e3 for pair in pairs]).median for side in (0, 1))
        self.page.add(
            Row(
                f"write {size // KIB} KiB",
                "time through the cache to that around it",
                Spread.of([through / around for around, through in pairs]),
                Goal(1.05),
                f"around {around:.1f} ms, through {through:.1f} ms",
            )
        )

    def _seconds(self, mode: str, name: str, size: int, count: int) -> float:
        keys = [f"{mode}-{size}-{name}-{number}" for number in range(count)]
        bodies = [bytes(contents(key, size)) for key in keys]
        started = time.perf_counter()
        for key, body in zip(keys, bodies, strict=True):
            put(self.node, self.bed, key, body, mode)
        seconds = time.perf_counter() - started
        time.sleep(PAUSE_SECONDS)
        return seconds

    def _first_read(self) -> None:
        ratios = []
        for number in range(self.rounds):
            key = f"read-{number}"
            body = bytes(contents(key, 64 * MIB))
            put(self.counted, self.bed, key, body, "through")
            self.relay.take()
            read(self.counted.url, self.bed.account, Get(BUCKET, key), memoryview(body))
            ratios.append(self.relay.take() / len(body))
        self.page.add(
            Row("read 64 MiB just written through", "lake bytes", Spread.of(ratios), Goal(0.0), "times the object")
        )


def put(node: Node, bed: Bed, key: str, body: bytes, mode: str) -> None:
    """Writes one object through a node."""
    headers = {"x-shoal-write": mode}
    require_ok(send(node.url, bed.account, "PUT", BUCKET, key, headers=headers, body=body).status)
