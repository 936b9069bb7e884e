#!/usr/bin/env python3
"""Writes the results of an experiment into its README, between the marks `<!-- numbers -->` and `<!-- end -->`.

usage: tables.py RESULTS.csv README.md [--baseline VARIANT]

A row for each cell: median, least and greatest of the run time over the seeds, and how much less (or more) the baseline
takes, seed by seed.
"""

import argparse
import csv
from collections import defaultdict
from pathlib import Path
from statistics import median

BEGIN, END = "<!-- numbers -->\n", "<!-- end -->"

Cells = dict[tuple[str, ...], dict[str, dict[str, float]]]


def cells(path: Path) -> tuple[list[str], Cells]:
    """Returns the axes but `variant`, and the run time by their values, the variant and the seed."""
    found: Cells = defaultdict(lambda: defaultdict(dict))
    with path.open() as lines:
        rows = list(csv.DictReader(lines))
    axes = [name for name in rows[0] if name != "variant"]
    axes = axes[: axes.index("seed")]
    for row in rows:
        found[tuple(row[axis] for axis in axes)][row["variant"]][row["seed"]] = float(row["run_s"])
    return axes, found


def percent(values: list[float]) -> str:
    """Returns median, least and greatest value in percent."""
    low, middle, high = min(values), median(values), max(values)
    return f"{middle:+.1%} ({low:+.1%} to {high:+.1%})".replace("-", "\u2212")


def table(path: Path, baseline: str) -> str:
    """Returns the rows as Markdown."""
    axes, found = cells(path)
    head = [*(axis.rsplit(".", 1)[-1] for axis in axes), "", "run time, s", f"{baseline}, in relation to it"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for point, variants in found.items():
        for variant, times in variants.items():
            ratios = [variants[baseline][seed] / seconds - 1 for seed, seconds in times.items()]
            seconds = f"{median(times.values()):,.0f} ({min(times.values()):,.0f} to {max(times.values()):,.0f})"
            lines.append("| " + " | ".join([*point, variant, seconds, percent(ratios)]) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Replaces the text between the marks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("results", type=Path)
    parser.add_argument("readme", type=Path)
    parser.add_argument("--baseline", default="dynamic")
    args = parser.parse_args()
    before, rest = args.readme.read_text().split(BEGIN)
    after = rest.split(END, 1)[1]
    args.readme.write_text(before + BEGIN + "\n" + table(args.results, args.baseline) + "\n" + END + after)


if __name__ == "__main__":
    main()
