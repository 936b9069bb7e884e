"""What a row of the scoreboard is made of."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from net.cluster import Cluster, Shape
from net.reader import Outcome

# A two-hundredth of the published Gbit/s: a node 40, a rack 4 x 40, its clients 8 x 10, the lake 8 (1 GB/s).
NODE_MBIT, RACK_MBIT, CLIENT_MBIT, LAKE_MBIT = 200, 800, 400, 40
MIB = 1 << 20


@dataclass(frozen=True)
class Bed:
    """What rows are measured with."""

    binary: Path
    folder: Path
    lake: str
    rounds: int
    """What sizes are divided by: one, or more to see only that it works."""
    haste: int

    def cluster(self, name: str, shape: Shape) -> Cluster:
        """A cluster before this bed's lake, that ends with its block."""
        return Cluster(self.binary, self.folder / name, replace(shape, lake=self.lake))


@dataclass(frozen=True)
class Line:
    """One number, measured in several rounds."""

    measurement: str
    published: str
    to_reach: str
    values: Sequence[float]
    """How a value is written, such as `{:.2f}`."""
    form: str = "{:.2f}"
    """The least and the greatest median that reaches it; neither where there is nothing to reach."""
    least: float | None = None
    most: float | None = None

    @property
    def reached(self) -> str:
        """By the median."""
        if self.least is None and self.most is None:
            return "–"
        middle = statistics.median(self.values)
        enough = self.least is None or middle >= self.least
        not_too_much = self.most is None or middle <= self.most
        return "yes" if enough and not_too_much else "**no**"

    @property
    def ours(self) -> str:
        """Median, least and greatest."""
        middle, low, high = (
            self.form.format(value) for value in (statistics.median(self.values), min(self.values), max(self.values))
        )
        return f"{middle} ({low}–{high})"


Row = Callable[[Bed], Sequence[Line]]


class Unsound(RuntimeError):
    """A measurement that does not count, as reads failed or gave other bytes."""


def sound(outcome: Outcome) -> Outcome:
    """The outcome itself, when every read of it ended well."""
    if outcome.failed or outcome.wrong or outcome.healed:
        raise Unsound(f"failed {outcome.failed[:2]}, wrong {outcome.wrong[:2]}, retried {dict(outcome.healed)}")
    return outcome
