"""Measures warm reads of clients whose keys no node knows: `PYTHONPATH=tests python3 -m bench.unknown --shoal BIN`.

Three nodes before one lake have the same objects and answer the same signed requests in turn. One knows the key and
asks the lake about each read (`revalidate`), one does not know it (`unknown_identities = "lake"`), and one knows it
and serves from its cache (`immutable`). The lake is on this machine, and then 10 ms away.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from real.lakes import LAKES, LakeUnavailable
from real.node import Node
from real.processes import run
from real.scratch import scratch

from bench.bed import BUCKET, KIB, MIB, contents
from bench.client import read
from bench.load import Get, Load, generate
from bench.process_facts import cpu_seconds
from bench.report import Goal, Page, Row, Spread
from bench.tier.bed import Options, TierBed
from bench.tier.delay import DelayRelay

SIZES, OBJECTS = (4 * KIB, 64 * KIB, MIB), 64
CONNECTIONS = (1, 16)
LAKE_S = 0.01
UNKNOWN, REVALIDATE, HIT = "unknown", "revalidate", "hit"
NODES = (REVALIDATE, UNKNOWN, HIT)


@dataclass
class _Side:
    """The results of one node."""

    loads: list[Load] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)


def main() -> int:
    """Measures before both lakes, and prints a page."""
    arguments = _parse()
    options = Options(arguments.shoal.resolve(), arguments.rounds, arguments.seconds, OBJECTS, arguments.lake)
    page = Page(
        f"{run([options.binary, '--version']).strip()}, {options.lake}",
        f"{options.rounds} interleaved rounds of {options.seconds:g} s",
    )
    try:
        with scratch("shoal-unknown-") as folder, TierBed(options, folder, page) as bed:
            far = bed.enter(DelayRelay(bed.lake.url, LAKE_S))
            for where, lake_url in (("near", bed.lake.url), (f"{LAKE_S * 1e3:.0f} ms away", far.url)):
                _measure_before(bed, where, lake_url)
    except LakeUnavailable as reason:
        print(f"skipped: {reason}")
        return 0
    if arguments.results:
        with arguments.results.open("a") as file:
            file.write("\n" + page.markdown(datetime.now(UTC)))
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shoal", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--lake", choices=LAKES, default="minio")
    parser.add_argument("--results", type=Path)
    return parser.parse_args()


def _measure_before(bed: TierBed, where: str, lake_url: str) -> None:
    nodes = {name: bed.enter(_node(bed, name, where, lake_url)) for name in NODES}
    for size in SIZES:
        for get in _gets(size):
            body = bytes(contents(get.key, size))
            bed.put(bed.lake.url, get.key, body)
            for node in nodes.values():
                read(node.url, bed.account, get, memoryview(body))
    for node in nodes.values():
        node.settle()
    for size in SIZES:
        for connections in CONNECTIONS:
            _measure(bed, nodes, where, size, connections)
    for node in nodes.values():
        node.stop()


def _node(bed: TierBed, name: str, where: str, lake_url: str) -> Node:
    account = bed.account
    own = {"SHOAL_LAKE_ACCESS_KEY": account.access_key, "SHOAL_LAKE_SECRET_KEY": account.secret_key}
    if name == UNKNOWN:
        own["SHOAL_S3_UNKNOWN_IDENTITIES"] = "lake"
    return Node(
        bed.options.binary,
        bed.folder / f"{name}-{where.replace(' ', '-')}",
        lake_url,
        [] if name == UNKNOWN else [account],
        name=name,
        tables='[freshness]\ndefault = "immutable"\n' if name != REVALIDATE else "",
        environment=own,
    )


def _gets(size: int) -> list[Get]:
    return [Get(BUCKET, f"{size}-{number}") for number in range(OBJECTS)]


def _measure(bed: TierBed, nodes: dict[str, Node], where: str, size: int, connections: int) -> None:
    sides = {name: _Side() for name in NODES}
    for turn in range(bed.options.rounds + 1):
        at = turn % len(NODES)
        for name in (*NODES[at:], *NODES[:at]):
            pid = nodes[name].pid
            before = cpu_seconds([pid])
            load = generate(
                nodes[name].url,
                bed.account,
                _gets(size),
                bed.scratch,
                connections=connections,
                seconds=bed.options.seconds,
            )
            if load.bad_statuses or load.broken:
                raise RuntimeError(f"{name}: {load}")
            # The first round warms up.
            if turn:
                sides[name].loads.append(load)
                sides[name].cpu_us.append((cpu_seconds([pid]) - before) / load.requests * 1e6)
    case = f"warm read, {size // KIB} KiB, {connections} at once, the lake {where}"
    shown = ", ".join(f"{name} {_shown(side)}" for name, side in sides.items())
    for other, goal in ((REVALIDATE, Goal(1.1)), (HIT, None)):
        pairs = zip(sides[UNKNOWN].loads, sides[other].loads, strict=True)
        spread = Spread.of([one.p50_us / another.p50_us for one, another in pairs])
        bed.page.add(Row(case, f"p50, {UNKNOWN} to {other}", spread, goal, shown))


def _shown(side: _Side) -> str:
    rate = median(load.requests / load.seconds for load in side.loads)
    return f"{median(load.p50_us for load in side.loads):.0f} µs ({rate:.0f}/s, {median(side.cpu_us):.0f} µs of CPU)"


if __name__ == "__main__":
    sys.exit(main())
