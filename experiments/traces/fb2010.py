#!/usr/bin/env python3
"""Cuts the three stand-ins for TR-FB2010-1 out of SWIM's day of Facebook jobs; README.md says why there are three.

usage: fb2010.py FB-2010_samples_24_times_1hr_withInputPaths_0.tsv
"""

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

JOBS = 853
# Published: bytes read, footprint, footprint read more than once, footprint read once.
READ, FOOTPRINT, REPEATED, ONCE = 40e12, 10.1e12, 8e12, 2.1e12
# Published for the jobs after the first third: the paper moves 23 TB without caches, and 5 TB with them. A
# first read misses any cache.
FIRST_READS = 5 / 23


class Job(NamedTuple):
    """A job with its input and output halved, as published."""

    submit_s: int
    input_bytes: int
    output_bytes: int
    path: str


class Sums(NamedTuple):
    """The sums that the paper gives for its part of the trace, in bytes."""

    read: int
    footprint: int
    repeated: int
    once: int


def halved_jobs(path: Path) -> list[Job]:
    """Returns the jobs of the day."""
    jobs = []
    for line in path.read_text().splitlines():
        fields = line.split("\t")
        jobs.append(Job(int(fields[1]), int(fields[3]) // 2, int(fields[5]) // 2, fields[6]))
    return jobs


def sums(jobs: list[Job]) -> Sums:
    """Returns the sums of these jobs as the paper counts them."""
    longest: dict[str, int] = {}
    reads: Counter[str] = Counter()
    for job in jobs:
        longest[job.path] = max(longest.get(job.path, 0), job.input_bytes)
        reads[job.path] += 1
    footprint = sum(longest.values())
    once = sum(longest[path] for path, count in reads.items() if count == 1)
    return Sums(sum(job.input_bytes for job in jobs), footprint, footprint - once, once)


def windows(jobs: list[Job]) -> Iterator[tuple[int, list[Job], Sums]]:
    """Yields each run of neighbours that is as long as the published cut."""
    for first in range(len(jobs) - JOBS + 1):
        window = jobs[first : first + JOBS]
        yield first, window, sums(window)


def first_reads(jobs: list[Job]) -> float:
    """Returns the share of first reads in the bytes that jobs after the first third read."""
    third = len(jobs) // 3
    seen = {job.path for job in jobs[:third]}
    read = first = 0
    for job in jobs[third:]:
        read += job.input_bytes
        if job.path not in seen:
            seen.add(job.path)
            first += job.input_bytes
    return first / read if read else 0.0


def off(value: int, published: float) -> float:
    """Relative difference."""
    return abs(value / published - 1)


def write(name: str, jobs: list[Job]) -> None:
    """Write a cut in the form of SWIM, from second 0 on."""
    start_s = jobs[0].submit_s
    lines, before_s = [], start_s
    for number, job in enumerate(jobs):
        times = [job.submit_s - start_s, job.submit_s - before_s]
        fields = [f"job{number}", *times, job.input_bytes, 0, job.output_bytes, job.path]
        lines.append("\t".join(map(str, fields)))
        before_s = job.submit_s
    Path(__file__).with_name(name).write_text("\n".join(lines) + "\n")


def main() -> None:
    """Write the cuts."""
    jobs = halved_jobs(Path(sys.argv[1]))
    first, window, found = min(windows(jobs), key=lambda w: off(w[2].read, READ) + off(w[2].footprint, FOOTPRINT))
    write("fb2010-window.tsv", window)
    print(f"window: jobs {first} to {first + JOBS - 1} of the day: {found}")

    # Whole files, of which the day knows the length as the largest read; jobs whose file the day reads again.
    lengths: dict[str, int] = {}
    for job in jobs:
        lengths[job.path] = max(lengths.get(job.path, 0), job.input_bytes)
    reads = Counter(job.path for job in jobs)
    whole = [job._replace(input_bytes=lengths[job.path]) for job in jobs if reads[job.path] > 1]
    closest = sorted(
        windows(whole),
        key=lambda w: off(w[2].read, READ) + off(w[2].repeated, REPEATED) + off(w[2].once, ONCE),
    )
    possible = next(cut for cut in closest if first_reads(cut[1]) <= FIRST_READS)
    for name, (first, window, found) in [("reread", closest[0]), ("first-reads", possible)]:
        write(f"fb2010-{name}.tsv", window)
        print(f"{name}: jobs {first} to {first + JOBS - 1} of {len(whole)}: {found}")
        print(f"  after a third {first_reads(window):.1%} of the bytes are read for the first time")


if __name__ == "__main__":
    main()
