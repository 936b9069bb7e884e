#!/usr/bin/env python3
"""Writes the results of this experiment as a table of runs, and their medians into README.md.

usage: table.py REPORTS RESULTS.csv [--quick]

REPORTS has a folder for each workload with the results.json of its runs. With --quick README.md stays as it is.
"""

import csv
import json
import re
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

BEGIN, END = "<!-- numbers -->\n", "<!-- end -->"
WORKLOADS = ["uniform", "zipf", "facebook", "scan"]
# The order of the three numbers in a cell.
MODES = ["hierarchy", "gwf", "all-ar"]
SOURCES = ["local", "peer", "lake", "joined"]

Row = dict[str, Any]


def runs(reports: Path) -> list[Row]:
    """Returns a row for each run."""
    rows = []
    for workload in WORKLOADS:
        results = json.loads((reports / workload / "results.json").read_text())
        for outcome in results["outcomes"]:
            labels = {label["axis"]: label["point"] for label in outcome["labels"]}
            place = re.fullmatch(r"(\d+) nodes, room (\d+)%", labels["variant"])
            report = outcome["report"]
            sources = {source: report["sources"][source]["bytes"] for source in SOURCES}
            row = {
                "workload": workload,
                "room_percent": int(place[2]),
                "nodes": int(place[1]),
                "cooperation": labels["cluster.cooperation"],
                "seed": outcome["seed"],
                "read_bytes": sum(sources.values()),
                "distinct_bytes": report["distinct_bytes"],
            }
            row |= {f"{source}_bytes": volume for source, volume in sources.items()}
            row["between_nodes_bytes"] = report["between_nodes"]["bytes"]
            row["run_s"] = report["run_s"]
            rows.append(row)
    return rows


def table(rows: list[Row]) -> str:
    """Returns the medians over the seeds as Markdown: for each measure a line for each workload and room."""
    measures = {
        "local hits, % of the bytes read": lambda row: 100 * row["local_bytes"] / row["read_bytes"],
        "read from the lake, × the distinct bytes": lambda row: row["lake_bytes"] / row["distinct_bytes"],
        "sent between nodes, × the distinct bytes": lambda row: row["between_nodes_bytes"] / row["distinct_bytes"],
    }
    tables = []
    for name, measure in measures.items():
        values: dict[tuple[str, int], dict[tuple[int, str], list[float]]] = defaultdict(lambda: defaultdict(list))
        for row in rows:
            values[row["workload"], row["room_percent"]][row["nodes"], row["cooperation"]].append(measure(row))
        nodes = list(dict.fromkeys(row["nodes"] for row in rows))
        head = " | ".join(f"{count} nodes" for count in nodes)
        lines = [f"| {name} | {head} |", "|---" * (len(nodes) + 1) + "|"]
        form = ".0f" if "%" in name else ".2f"
        for (workload, room), found in values.items():
            cells = [" / ".join(format(median(found[count, mode]), form) for mode in MODES) for count in nodes]
            lines.append(f"| {workload}, room for {room}% | " + " | ".join(cells) + " |")
        tables.append("\n".join(lines) + "\n")
    return "\n".join(tables)


def main() -> None:
    """Writes all tables."""
    reports, results, *quick = sys.argv[1:]
    rows = runs(Path(reports))
    with Path(results).open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    if quick:
        return
    page = Path(__file__).resolve().parent / "README.md"
    before, rest = page.read_text().split(BEGIN)
    page.write_text(before + BEGIN + "\n" + table(rows) + "\n" + END + rest.split(END, 1)[1])


if __name__ == "__main__":
    main()
