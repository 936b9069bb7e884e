"""The parts of a row of the scoreboard."""

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
    """The binary, the folder, the lake and the number of rounds for the measurement of rows."""

    binary: Path
    folder: Path
    lake: str
    rounds: int
    """The divisor of sizes: one, or more for a run that only shows that the row works."""
    haste: int

    @property
    def lab(self) -> Path:
        """The program that simulates, beside the binary."""
        return self.binary.with_name("shoal-lab")

    def cluster(self, name: str, shape: Shape) -> Cluster:
        """Returns a cluster in front of a lake of this bed's kind, which ends with its `with` block."""
        return Cluster(self.binary, self.folder / name, replace(shape, lake=self.lake))


@dataclass(frozen=True)
class Line:
    """One number, measured in several rounds."""

    measurement: str
    published: str
    to_reach: str
    values: Sequence[float]
    """The format of a value, such as `{:.2f}`."""
    form: str = "{:.2f}"
    """The least and the greatest median that reaches the goal; both None if there is no goal."""
    least: float | None = None
    most: float | None = None

    @property
    def reached(self) -> str:
        """Returns whether the median reaches the goal, in a word."""
        if self.least is None and self.most is None:
            return "–"
        middle = statistics.median(self.values)
        enough = self.least is None or middle >= self.least
        not_too_much = self.most is None or middle <= self.most
        return "yes" if enough and not_too_much else "**no**"

    @property
    def ours(self) -> str:
        """Returns median, least and greatest."""
        middle, low, high = (
            self.form.format(value) for value in (statistics.median(self.values), min(self.values), max(self.values))
        )
        return f"{middle} ({low}–{high})"


Row = Callable[[Bed], Sequence[Line]]


class Unsound(RuntimeError):
    """A measurement that does not count, as reads failed or gave other bytes."""


def sound(outcome: Outcome) -> Outcome:
    """Returns the outcome if every read of it ended well; raises otherwise."""
    if outcome.failed or outcome.wrong or outcome.healed:
        raise Unsound(f"failed {outcome.failed[:2]}, wrong {outcome.wrong[:2]}, retried {dict(outcome.healed)}")
    return outcome
