"""Makes two weeks of Spark event logs from one: FOLDER gets a log for each of three daily jobs and each day.

The one is a log of this project's own tests (crates/shoal-history/tests/data). Dates, times, names and buckets are
moved, and its small tables are made larger; the queries are as they were.
"""

from __future__ import annotations

import re
import sys
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

LOG = Path(__file__).parents[2] / "crates/shoal-history/tests/data/spark-3.3-partitioned.json"
# The run of the log is named after this day. Its tables have a kilobyte a day.
FIRST_DAY = date(2026, 11, 20)
DAYS = 14
TIMES_LARGER = 1 << 24
MINUTES = 20
# Each job, its table, and the time at which it is submitted.
JOBS = [("orders", "sales", time(2, 0)), ("revenue", "sales", time(2, 20)), ("clicks", "web", time(2, 30))]


def main() -> None:
    """Writes the logs into the folder on the command line."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    text = LOG.read_text()
    for shift in range(DAYS):
        day = FIRST_DAY + timedelta(days=shift)
        for job, table, at in JOBS:
            # No job is on time to the second.
            late = timedelta(seconds=shift * 37 % 60)
            log = larger(dated(text, shift))
            log = timed(log, datetime.combine(day, at, UTC) + late)
            log = log.replace("partitioned_daily", job).replace("s3a://lake/x/", f"s3a://lake/{table}/")
            (folder / f"{job}-{day}").write_text(log)


def dated(text: str, shift: int) -> str:
    """Moves dates by so many days."""

    def moved(match: re.Match[str]) -> str:
        return str(date.fromisoformat(match.group()) + timedelta(days=shift))

    text = re.sub(r"2026-11-\d\d", moved, text)
    return re.sub(r"(\(day#\d+ = )(\d+)", lambda match: f"{match[1]}{int(match[2]) + shift}", text)


def larger(text: str) -> str:
    """Multiplies the sizes of the files that scans read."""
    for number in re.findall(r'"size of files read","accumulatorId":(\d+)', text):
        size = re.compile(rf"\[{number},(\d+)\]")
        text = size.sub(lambda match: f"[{number},{int(match[1]) * TIMES_LARGER}]", text)  # noqa: B023
    return text


def timed(text: str, begin: datetime) -> str:
    """Moves the first time to `begin`, and the last one to `MINUTES` later."""
    times = sorted(map(int, re.findall(r"\b17955\d{8}\b", text)))
    first, length = times[0], times[-1] - times[0]

    def moved(match: re.Match[str]) -> str:
        share = (int(match.group()) - first) / length
        return str(round((begin.timestamp() + share * MINUTES * 60) * 1000))

    return re.sub(r"\b17955\d{8}\b", moved, text)


if __name__ == "__main__":
    main()
