#!/usr/bin/env python3
"""Asks a Prometheus every query of a dashboard, and for every recorded series, until all have data.

Usage: query_dashboard.py DASHBOARD RULES URL
"""

import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

# Scrapes come every second, and rates need two of them.
PATIENCE_SECONDS = 60
VARIABLES = {"$job": ".*", "$instance": ".*", "$__rate_interval": "1m"}


def queries(panels: list) -> Iterator[tuple[str, str]]:
    """Yield the title and the text of each query."""
    for panel in panels:
        for target in panel.get("targets", []):
            text = target["expr"]
            for variable, value in VARIABLES.items():
                text = text.replace(variable, value)
            yield panel["title"], text
        yield from queries(panel.get("panels", []))


def answer(url: str, query: str) -> list:
    """Return the series that have a number now."""
    with urlopen(f"{url}/api/v1/query?{urlencode({'query': query})}") as response:
        series = json.load(response)["data"]["result"]
    return [one for one in series if one["value"][1] != "NaN"]


def main() -> int:
    """Print the queries that have no data in the end, and return whether there are any."""
    dashboard, rules, url = sys.argv[1:]
    wanted = list(queries(json.loads(Path(dashboard).read_text())["panels"]))
    recorded = re.findall(r"record: (\S+)", Path(rules).read_text())
    # No request fails at this lake.
    wanted += [("rule", name) for name in recorded if name != "instance:shoal_lake_failures:ratio_rate5m"]
    end = time.monotonic() + PATIENCE_SECONDS
    empty = wanted
    while empty and time.monotonic() < end:
        empty = [(title, query) for title, query in empty if not answer(url, query)]
        if empty:
            time.sleep(1)
    for title, query in empty:
        print(f"no data: {title}: {query}")
    print(f"{len(wanted) - len(empty)} of {len(wanted)} queries return data")
    return 1 if empty else 0


if __name__ == "__main__":
    sys.exit(main())
