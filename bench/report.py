"""Ratios over interleaved rounds, and the page they are written to."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path


@dataclass(frozen=True)
class Spread:
    """Median, lowest and highest of the rounds."""

    median: float
    lowest: float
    highest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Returns the spread of at least one value."""
        return cls(statistics.median(values), min(values), max(values))

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.lowest:.2f}–{self.highest:.2f})"


@dataclass(frozen=True)
class Goal:
    """The bound of a figure: a least or a greatest value."""

    bound: float
    at_least: bool = False

    def met(self, value: float) -> bool:
        """Returns whether a figure, rounded as printed, reaches the goal."""
        value = round(value, 2)
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.bound:g}"


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    case: str
    measure: str
    figure: Spread
    goal: Goal | None
    """The absolute figures behind it."""
    detail: str

    def cells(self) -> list[str]:
        """Returns the cells of the row in Markdown."""
        verdict = "" if self.goal is None else ("yes" if self.goal.met(self.figure.median) else "**no**")
        return [self.case, self.measure, str(self.figure), str(self.goal or ""), verdict, self.detail]


@dataclass
class Page:
    """One run of the bench."""

    versions: str
    setting: str
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, row: Row) -> None:
        """Keeps and prints a row."""
        self.rows.append(row)
        print(" | ".join(row.cells()), flush=True)

    def note(self, text: str) -> None:
        """Keeps and prints a sentence."""
        self.notes.append(text)
        print(text, flush=True)

    def markdown(self, now: datetime) -> str:
        """Returns the whole page."""
        lines = [
            f"## {now:%Y-%m-%d %H:%M} UTC",
            "",
            f"{machine()}. {self.versions}. {self.setting}",
            "",
            "Median of the rounds, lowest and highest in parentheses.",
            "",
            "| case | measure | figure | goal | reached | behind it |",
            "|---|---|---|---|---|---|",
            *("| " + " | ".join(row.cells()) + " |" for row in self.rows),
            "",
            *(f"- {note}" for note in self.notes),
            "",
        ]
        return "\n".join(lines)

    def append_to(self, folder: Path) -> Path:
        """Appends the page to today's file."""
        now = datetime.now(UTC)
        path = folder / f"{now:%Y-%m-%d}.md"
        fresh = not path.exists()
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            if fresh:
                file.write(f"# Bench, {now:%Y-%m-%d}\n\n")
            file.write(self.markdown(now) + "\n")
        return path


def machine() -> str:
    """Returns processor, cores, memory, kernel."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return f"{os.cpu_count()} cores of {model}, {memory_gib:.0f} GiB, Linux {platform.release()}"
