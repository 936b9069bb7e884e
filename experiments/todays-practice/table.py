"""Writes policies' lake bytes, and their share of the gap to the bound, into README.md: table.py RESULTS README.md."""

import csv
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median

BASE, BOUND = "lru", "belady"
POLICIES = ["lfu", "lfuda", "sieve", "s3-fifo", "duel", "life", "gwf"]
# Where LRU reads less than this above the bound, a share of the gap says nothing.
GAP_MIN = 0.01

Row = tuple[str, str, int]
Missed = dict[Row, dict[str, list[float]]]


def missed(path: Path) -> Missed:
    """For each stream and room the bytes that missed in parts of the footprint, by policy, a number a seed."""
    rows: Missed = defaultdict(lambda: defaultdict(list))
    with path.open() as lines:
        for line in csv.DictReader(lines):
            row = (named(line["experiment"]), setting(line["varied"]), int(line["room_bytes"]))
            rows[row][line["policy"]].append(int(line["missed_bytes"]) / int(line["footprint_bytes"]))
    return rows


def named(experiment: str) -> str:
    """Returns the row of the scoreboard."""
    folder, file = experiment.split("/")
    if folder == "todays-practice":
        return file
    return folder if file == "EXPERIMENT" else f"{folder}, {file}"


def setting(varied: str) -> str:
    """Returns the varied setting, by the last word of its name, and its value."""
    axis, _, point = varied.partition("=")
    return f"{axis.split('.')[-1]} {point}".strip()


def closed(row: dict[str, list[float]], policy: str) -> float | None:
    """Returns the median share that a policy closes of the gap from LRU to the bound."""
    seeds = list(zip(row[BASE], row[policy], row[BOUND], strict=True))
    if median(base / bound - 1 for base, _, bound in seeds) < GAP_MIN:
        return None
    return median((base - own) / (base - bound) for base, own, bound in seeds)


def percent(share: float) -> str:
    """With the minus of the other tables, and none before nothing."""
    return f"{round(share * 100) or 0}%".replace("-", "−")


def gigabytes(room_bytes: int) -> str:
    """Room, with a decimal where it is little."""
    return f"{room_bytes / 1e9:,.0f}" if room_bytes >= 10e9 else f"{room_bytes / 1e9:.1f}"


def lake(rows: Missed) -> Iterator[str]:
    """Bytes read of the lake, the least marked."""
    yield "| experiment | varied | room, GB | " + " | ".join([BASE, *POLICIES, BOUND]) + " |"
    yield "|---" * (len(POLICIES) + 5) + "|"
    for (name, varied, room_bytes), row in rows.items():
        parts = {policy: median(row[policy]) for policy in [BASE, *POLICIES, BOUND]}
        least = min(f"{parts[policy]:.2f}" for policy in [BASE, *POLICIES])
        cells = [f"{part:.2f}" for part in parts.values()]
        marked = [f"**{cell}**" if cell == least else cell for cell in cells[:-1]]
        yield f"| {name} | {varied} | {gigabytes(room_bytes)} | " + " | ".join([*marked, cells[-1]]) + " |"


def gap(rows: Missed) -> Iterator[str]:
    """The share of the gap that each closes, and in how many rows."""
    yield "| experiment | varied | room, GB | gap | " + " | ".join(POLICIES) + " |"
    yield "|---" * (len(POLICIES) + 4) + "|"
    shares = defaultdict(list)
    for (name, varied, room_bytes), row in rows.items():
        each = {policy: closed(row, policy) for policy in POLICIES}
        open_gap = median(base / bound - 1 for base, bound in zip(row[BASE], row[BOUND], strict=True))
        cells = ["–" if share is None else percent(share) for share in each.values()]
        yield f"| {name} | {varied} | {gigabytes(room_bytes)} | {open_gap:.1%} | " + " | ".join(cells) + " |"
        for policy, share in each.items():
            if share is not None:
                shares[policy].append(share)
    means = [percent(mean(shares[policy])) for policy in POLICIES]
    worst = [percent(min(shares[policy])) for policy in POLICIES]
    yield "| **mean of rows** | | | | " + " | ".join(means) + " |"
    yield "| **worst row** | | | | " + " | ".join(worst) + " |"


def main() -> None:
    """Reads the results and writes both tables between their marks."""
    results, readme = map(Path, sys.argv[1:])
    rows = missed(results)
    text = readme.read_text()
    for mark, lines in (("lake", lake(rows)), ("gap", gap(rows))):
        block = f"<!-- {mark} -->\n\n" + "\n".join(lines) + "\n\n<!-- end -->"
        text = re.sub(rf"<!-- {mark} -->.*?<!-- end -->", lambda _, block=block: block, text, flags=re.DOTALL)
    readme.write_text(text)


if __name__ == "__main__":
    main()
