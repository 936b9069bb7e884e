#!/usr/bin/env python3
"""Draws the figures of an experiment and tabulates them, from the results beside its figures.toml.

They are in results/results.csv or else in results/FILE/results.csv; the column `file` tells which.

usage: figures.py FOLDER...

figures.toml holds a [[figure]] for each:
  name      of the file, results/NAME.svg
  title     above it
  y         the value to draw, an expression of columns: "lake_bytes", "read_hits / reads"
  label     of the axis
  series    the column whose values are told apart by colour, usually "variant"
  x         the column whose values stand side by side, or several; one group when it is left out
  names     the labels of the values of x
  plain     true for a table without a drawing
  base      a value of `series`: everything is divided by it, seed by seed
results/numbers.md gets the median of each bar over the seeds, and its least and greatest value.
"""

import csv
import re
import statistics
import sys
import tomllib
from pathlib import Path
from typing import Any

COLOURS = ["#4477aa", "#66ccee", "#228833", "#ccbb44", "#ee6677", "#aa3377", "#bbbbbb", "#222222"]
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 900, 420, 70, 40, 70


# (x, series) -> values, one for each seed.
Found = dict[tuple[str, str], list[float]]

UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "KB": 1e3, "MB": 1e6, "GB": 1e9}


def numbers(row: dict[str, str]) -> dict[str, float]:
    """Returns the columns that are numbers or sizes, by their names with _ for each dot."""
    parsed = {column: re.fullmatch(r"([0-9.]+(?:e[+-]?\d+)?)([KMG]i?B)?", text) for column, text in row.items()}
    return {
        column.replace(".", "_"): float(match[1]) * UNITS[match[2] or ""] for column, match in parsed.items() if match
    }


def bars(figure: dict[str, Any], rows: list[dict[str, str]]) -> Found:
    """(x, series) -> values over the seeds, in the order of the table."""
    axes, series = figure.get("x", []), figure.get("series", "variant")
    axes = axes if isinstance(axes, list) else [axes]
    code = compile(figure["y"], figure["name"], "eval")
    by_seed = {}
    for row in rows:
        value = eval(code, {"__builtins__": {}}, numbers(row))
        by_seed[", ".join(row[axis] for axis in axes), row[series], row["seed"]] = value
    found = {}
    for (x, name, seed), value in by_seed.items():
        unit = by_seed[x, figure["base"], seed] if "base" in figure else 1.0
        found.setdefault((x, name), []).append(value / unit)
    return found


def svg(figure: dict[str, Any], found: Found) -> str:
    """Bars of medians, with lines from the least to the greatest value."""
    groups = list(dict.fromkeys(x for x, _ in found))
    series = list(dict.fromkeys(name for _, name in found))
    top = max(max(values) for values in found.values()) * 1.08 or 1.0
    right = WIDTH - 170
    plot_height = HEIGHT - TOP - BOTTOM
    slot = (right - LEFT) / len(groups)
    width = slot * 0.8 / len(series)

    def y(value: float) -> float:
        return TOP + plot_height * (1 - value / top)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="24" font-size="15">{figure["title"]}</text>',
        f'<text transform="translate(18 {HEIGHT / 2:.0f}) rotate(-90)" text-anchor="middle">{figure["label"]}</text>',
    ]
    for step in range(6):
        value = top * step / 5
        parts.append(
            f'<path d="M{LEFT} {y(value):.1f}H{right}" stroke="#dddddd"/>'
            f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.3g}</text>'
        )
    names = figure.get("names", {})
    for place, group in enumerate(groups):
        start = LEFT + slot * (place + 0.1)
        for number, name in enumerate(series):
            values = found[group, name]
            middle, x = statistics.median(values), start + width * number
            parts.append(
                f'<rect x="{x:.1f}" y="{y(middle):.1f}" width="{width * 0.92:.1f}" '
                f'height="{y(0) - y(middle):.1f}" fill="{COLOURS[number % len(COLOURS)]}"/>'
                f'<path d="M{x + width * 0.46:.1f} {y(min(values)):.1f}V{y(max(values)):.1f}" stroke="black"/>'
            )
        centre = LEFT + slot * (place + 0.5)
        parts.append(
            f'<text x="{centre:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{names.get(group, group)}</text>'
        )
    for number, name in enumerate(series):
        at = TOP + 18 * number
        parts.append(
            f'<rect x="{right + 14}" y="{at}" width="12" height="12" fill="{COLOURS[number % len(COLOURS)]}"/>'
            f'<text x="{right + 32}" y="{at + 11}">{name}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def table(figure: dict[str, Any], found: Found) -> str:
    """Returns the figure as a table."""
    groups = list(dict.fromkeys(x for x, _ in found))
    series = list(dict.fromkeys(name for _, name in found))
    names = figure.get("names", {})
    lines = [f"## {figure['title']}: {figure['label']}", ""]
    lines.append("| | " + " | ".join(names.get(group, group) for group in groups) + " |")
    lines.append("|---" * (len(groups) + 1) + "|")
    for name in series:
        cells = []
        for group in groups:
            values = found[group, name]
            cells.append(f"{statistics.median(values):.4g} ({min(values):.4g}–{max(values):.4g})")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def main(folders: list[str]) -> None:
    """Draws and tabulates all figures of each folder."""
    for folder in map(Path, folders):
        results = folder / "results"
        rows = []
        whole = results / "results.csv"
        for path in [whole] if whole.exists() else sorted(results.glob("*/results.csv")):
            with path.open(newline="") as file:
                rows += [{"file": path.parent.name, **row} for row in csv.DictReader(file)]
        tables = []
        for figure in tomllib.loads((folder / "figures.toml").read_text())["figure"]:
            found = bars(figure, rows)
            if not figure.get("plain"):
                (results / f"{figure['name']}.svg").write_text(svg(figure, found))
            tables.append(table(figure, found))
        (results / "numbers.md").write_text("\n".join(tables))


if __name__ == "__main__":
    main(sys.argv[1:])
