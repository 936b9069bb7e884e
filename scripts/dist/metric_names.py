#!/usr/bin/env python3
"""Checks that files name no metric but those of docs/reference/metrics.md, which a test compares with /metrics."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def documented() -> set[str]:
    """Return the metrics of the reference, and the series of its histograms."""
    names = set()
    for line in (ROOT / "docs/reference/metrics.md").read_text().splitlines():
        if line.startswith("| `shoal_"):
            cell, meaning = line.split("|")[1:3]
            for name in re.findall(r"`(shoal_\w+)", cell):
                suffixes = ("_bucket", "_sum", "_count") if "histogram" in meaning else ("",)
                names.update(name + suffix for suffix in suffixes)
    return names


def recorded() -> set[str]:
    """Return the names of the recording rules."""
    rules = (ROOT / "packaging/prometheus/shoal.rules.yml").read_text()
    return set(re.findall(r"record: (\S+)", rules))


def main() -> int:
    """Print the unknown names, and return whether there are any."""
    known = documented() | recorded()
    unknown = 0
    for file in sys.argv[1:]:
        for name in sorted(set(re.findall(r"\b[a-z:]*shoal_[a-z0-9_:]+", Path(file).read_text())) - known):
            print(f"{file}: {name} is no metric of docs/reference/metrics.md")
            unknown += 1
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
