"""Measures rows of the scoreboard on a live cluster; see `experiments/testbed/run.sh`."""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from net.command_line import CommandLine
from real.etcd import EtcdUnavailable
from real.lakes import LakeUnavailable
from real.processes import run

from bench.report import machine

from .adaptation import adaptation
from .dags import dags
from .elasticity import elasticity
from .erasure import erasure
from .facebook import NARROW, facebook
from .hints import hints
from .intermediate import intermediate
from .jobs import FIRST_READS
from .jobs_directory import jobs_directory
from .layers import cold, directory, local, remote, solo, striping
from .plans import PlannerUnavailable, plans
from .row import Bed, Line, Row
from .small_latency import small_latency
from .small_writes import small_writes
from .whole_objects import whole_objects
from .writing import writing

ROWS: dict[str, Row] = {
    "local": local,
    "solo": solo,
    "remote": remote,
    "cold": cold,
    "striping": striping,
    "facebook": facebook,
    "facebook-first-reads": partial(facebook, cut=FIRST_READS, lakes=(NARROW,)),
    "adaptation": adaptation,
    "writing": writing,
    "erasure": erasure,
    "intermediate": intermediate,
    "intermediate-hints": partial(intermediate, hinted=True),
    "elasticity": elasticity,
    "jobs-directory": jobs_directory,
    "directory": directory,
    "plans": plans,
    "plans-ad-hoc": partial(plans, ad_hoc=True),
    "dags": dags,
    "hints": hints,
    "hints-metered": partial(hints, metered=True),
    "whole-objects-3-1": partial(whole_objects, nodes=3, clients=1),
    "whole-objects-3-4": partial(whole_objects, nodes=3, clients=4),
    "whole-objects-8-1": partial(whole_objects, nodes=8, clients=1),
    "whole-objects-8-4": partial(whole_objects, nodes=8, clients=4),
    "small-writes": small_writes,
    "small-writes-ceph": partial(small_writes, lake="ceph"),
    "small-latency": small_latency,
}
_HERE = Path(__file__).parent
_RESULTS = _HERE / "results"
_TABLE = _RESULTS / "results.csv"


def main() -> int:
    """Measures row after row, and writes the results into results/ unless the run was only a try."""
    arguments = _parse()
    rounds, haste = (2, 8) if arguments.quick else (arguments.rounds, 1)
    bed = Bed(arguments.shoal.resolve(), arguments.folder, arguments.lake, rounds, haste)
    for name in arguments.names or ROWS:
        before, started = os.getloadavg()[0], time.monotonic()
        try:
            lines = ROWS[name](bed)
        except LakeUnavailable as reason:
            print(f"skipped: no testbed without a lake: {reason}")
            return 0
        except (EtcdUnavailable, PlannerUnavailable) as reason:
            print(f"skipped: {name}: {reason}")
            continue
        load = f"load of the machine {before:.1f} before, {os.getloadavg()[0]:.1f} after"
        print(f"== {name}: {time.monotonic() - started:.0f} s, {load}", flush=True)
        print("\n".join(_table(lines)), flush=True)
        if not arguments.quick:
            version = run([bed.binary, "--version"]).strip()
            _keep(name, lines, f"{machine()}. {version}, {bed.lake}, {rounds} rounds, {load}")
    if not arguments.quick:
        _write_table()
    return 0


def _parse() -> argparse.Namespace:
    parser = CommandLine("experiments/testbed/run.sh", __doc__, "row", ROWS, lake="minio")
    parser.add_argument("--quick", action="store_true", help="two rounds of an eighth, nothing kept: does it work?")
    parser.add_argument("--rounds", type=int, default=5, help="of each row (5)")
    return parser.understood()


def _table(lines: Sequence[Line]) -> list[str]:
    return [
        f"| {line.measurement} | {line.published} | {line.to_reach} | {line.ours} | {line.reached} |" for line in lines
    ]


def _keep(name: str, lines: Sequence[Line], circumstances: str) -> None:
    _RESULTS.mkdir(exist_ok=True)
    kept = {"circumstances": circumstances, "lines": [asdict(line) for line in lines]}
    (_RESULTS / f"{name}.json").write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


def _write_table() -> None:
    """All rows that were ever kept, in one table."""
    with _TABLE.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["row", "measurement", "published", "to reach", "ours (median, spread)", "reached?"])
        for name in ROWS:
            path = _RESULTS / f"{name}.json"
            lines = [Line(**line) for line in json.loads(path.read_text())["lines"]] if path.exists() else []
            for line in lines:
                reached = line.reached.strip("*")
                table.writerow([name, line.measurement, line.published, line.to_reach, line.ours, reached])


if __name__ == "__main__":
    sys.exit(main())
