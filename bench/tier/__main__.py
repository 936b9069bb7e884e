"""Measures tiers: `PYTHONPATH=tests python3 -m bench.tier --shoal BIN [PART...]`.

Each part starts a lake, the services of its tier, and one node, and writes ratios of alternating runs into
`results/tier.md`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from real.etcd import EtcdUnavailable
from real.lakes import LAKES, LakeUnavailable
from real.processes import run
from real.scratch import scratch

from bench.report import Page

from . import beside, distance, many, outage, reads, small
from .bed import Options, TierBed

PARTS: dict[str, Callable[[TierBed], None]] = {
    "small": small.run,
    "distance": distance.run,
    "reads-embedded": reads.embedded,
    "reads-etcd": reads.etcd,
    "many-embedded": many.embedded,
    "many-etcd": many.etcd,
    "outside": beside.outside,
    "cleaning": beside.cleaning,
    "outage": outage.run,
}
RESULTS = Path(__file__).parents[1] / "results" / "tier.md"


def main() -> int:
    """Part after part; a part that this machine cannot run is skipped with its reason."""
    arguments = _parse()
    options = Options(arguments.shoal.resolve(), arguments.rounds, arguments.seconds, arguments.objects, arguments.lake)
    page = Page(
        f"{run([options.binary, '--version']).strip()}, {options.lake}",
        f"{options.rounds} interleaved rounds of {options.seconds:g} s. `{' '.join(arguments.parts)}`",
    )
    for part in arguments.parts:
        began = time.monotonic()
        try:
            with scratch("shoal-tier-") as folder, TierBed(options, folder, page) as bed:
                PARTS[part](bed)
        except (LakeUnavailable, EtcdUnavailable) as reason:
            print(f"skipped: {part}: {reason}")
            continue
        print(f"== {part}: {time.monotonic() - began:.0f} s", flush=True)
    if arguments.results:
        with arguments.results.open("a") as file:
            file.write("\n" + page.markdown(datetime.now(UTC)))
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m bench.tier", description=__doc__)
    parser.add_argument("--shoal", type=Path, required=True, help="the binary, built with --release")
    parser.add_argument("--lake", choices=tuple(LAKES), default="minio", help="lake and store of the tier (minio)")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (5)")
    parser.add_argument("--seconds", type=float, default=1, help="length of one run (1)")
    parser.add_argument("--objects", type=int, default=100_000, help="dirty objects of the parts `many` (100,000)")
    parser.add_argument("--results", type=Path, help=f"where the page is appended, such as {RESULTS.name}")
    parser.add_argument("parts", nargs="*", metavar="PART", help="some of: " + ", ".join(PARTS))
    arguments = parser.parse_args()
    unknown = set(arguments.parts) - set(PARTS)
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    if arguments.objects < 10 * many.PAGE:
        parser.error(f"--objects: a tenth of them must fill a page of {many.PAGE}")
    arguments.parts = arguments.parts or list(PARTS)
    return arguments


if __name__ == "__main__":
    sys.exit(main())
