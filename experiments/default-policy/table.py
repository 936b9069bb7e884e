"""Puts the shares that miss into README.md: table.py RESULTS... README.md."""

import csv
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

BOUND = "belady"
SHOWN = ["lru", "lfu", "lfuda", "sieve", "s3-fifo", "duel"]


Rows = dict[tuple[str, str], dict[str, float]]


def misses(paths: list[Path]) -> Rows:
    """For each trace and capacity the share that misses, by policy; workflows as their mean."""
    shares = defaultdict(lambda: defaultdict(list))
    for path in paths:
        if not path.exists():
            continue
        with path.open() as lines:
            for trace, capacity, policy, _requests, _misses, share, _bytes in csv.reader(lines):
                name = "workflows, mean" if trace.startswith("workflow ") else trace
                shares[name, capacity][policy].append(float(share))
    return {row: {policy: mean(all_of) for policy, all_of in one.items()} for row, one in shares.items()}


def every_row(rows: Rows) -> Iterator[str]:
    """A line a trace and capacity, the best of it marked."""
    names = [*SHOWN, BOUND]
    yield "| trace | room | " + " | ".join(names) + " |"
    yield "|---" * (len(names) + 2) + "|"
    for (trace, capacity), shares in rows.items():
        least = min(shares[policy] for policy in SHOWN)
        cells = [f"{shares[policy]:.1%}" for policy in names]
        marked = [f"**{cell}**" if shares[name] == least else cell for name, cell in zip(names, cells, strict=True)]
        yield f"| {trace} | {capacity} | " + " | ".join(marked) + " |"


def summary(rows: Rows) -> Iterator[str]:
    """Against LRU, against the best single policy of a row, and how much of LRU's distance to the bound is closed."""
    yield (
        "| | misses against LRU: mean | worst row | rows worse than LRU by > 0.5% "
        "| against the best of a row: mean | worst row | of the gap to the bound: mean |"
    )
    yield "|---|---|---|---|---|---|---|"
    everyone = [name for name in next(iter(rows.values())) if name != BOUND]
    singles = [name for name in SHOWN if name != "duel"]
    for name in everyone:
        against = [row[name] / row["lru"] - 1 for row in rows.values()]
        best = [row[name] / min(row[other] for other in singles) - 1 for row in rows.values()]
        open_rows = [row for row in rows.values() if row["lru"] - row[BOUND] > 0.005]
        closed = mean((row["lru"] - row[name]) / (row["lru"] - row[BOUND]) for row in open_rows)
        worse = sum(share > 0.005 for share in against)
        yield (
            f"| {name} | {mean(against):+.1%} | {max(against):+.1%} | {worse} of {len(rows)} "
            f"| {mean(best):+.1%} | {max(best):+.1%} | {closed:.0%} |"
        )


def main() -> None:
    """Reads the results and writes both tables between their marks."""
    *results, readme = map(Path, sys.argv[1:])
    rows = misses(results)
    text = readme.read_text()
    for mark, lines in (("summary", summary(rows)), ("rows", every_row(rows))):
        block = f"<!-- {mark} -->\n\n" + "\n".join(lines) + "\n\n<!-- end -->"
        text = re.sub(rf"<!-- {mark} -->.*?<!-- end -->", lambda _, block=block: block, text, flags=re.DOTALL)
    readme.write_text(text)


if __name__ == "__main__":
    main()
