#!/usr/bin/env python3
"""Says how many jobs and bytes of the last half of a SWIM day read a path that the first half had read.

No method that knows inputs by their paths can foresee more.

usage: known.py FB-2010_samples_24_times_1hr_withInputPaths_0.tsv
"""

import sys
from collections import Counter
from pathlib import Path


def main() -> None:
    """Prints the shares."""
    jobs = [line.split("\t") for line in Path(sys.argv[1]).read_text().splitlines()]
    half_s = int(jobs[-1][1]) / 2
    before: Counter[str] = Counter()
    later = []
    for job in jobs:
        submit_s, input_bytes, path = int(job[1]), int(job[3]), job[6].strip()
        if submit_s < half_s:
            before[path] += bool(input_bytes)
        else:
            later.append((path, input_bytes))
    read = sum(size for _, size in later)
    for least in (1, 3):
        known = [size for path, size in later if size and before[path] >= least]
        jobs_share, bytes_share = len(known) / len(later), sum(known) / read
        print(
            f"paths read at least {least} times before: {len(known)} of {len(later)} jobs ({jobs_share:.1%}), "
            f"{sum(known) / 2**40:.1f} of {read / 2**40:.1f} TiB ({bytes_share:.1%})"
        )


if __name__ == "__main__":
    main()
