"""Facebook's jobs, a forty-thousandth of their bytes: 40 TB become a gigabyte."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from net.objects import Read, ranges

SCALE = 40_000
# The two cuts of the trace (`../traces/README.md`).
REREAD, FIRST_READS = "fb2010-reread", "fb2010-first-reads"
_TRACES = Path(__file__).resolve().parents[1] / "traces"


@dataclass(frozen=True)
class Job:
    """Reads the first so many bytes of an object, and writes others."""

    path: str
    input_bytes: int
    output_bytes: int


def jobs(haste: int, scale: int = SCALE, trace: str = REREAD) -> list[Job]:
    """Returns all jobs of a trace in order, with a `scale`th of their bytes; `haste` divides these further."""
    with (_TRACES / f"{trace}.tsv").open(newline="") as lines:
        rows = list(csv.reader(lines, delimiter="\t"))
    return [Job(row[6], max(1, int(row[3]) // scale // haste), int(row[5]) // scale // haste) for row in rows]


def requests(read: Sequence[Job], request_bytes: int) -> list[Read]:
    """Returns the requests of all jobs in order, each for so many bytes at most."""
    lengths = sizes(read)
    return [
        Read(request.key, request.first, request.length, lengths[job.path])
        for job in read
        for request in ranges(job.path, job.input_bytes, request_bytes)
    ]


def sizes(read: Sequence[Job]) -> dict[str, int]:
    """Objects as long as the most that a job reads of each."""
    longest: dict[str, int] = {}
    for job in read:
        longest[job.path] = max(longest.get(job.path, 0), job.input_bytes)
    return longest
