"""Measures warm reads of coherent objects: `PYTHONPATH=tests python3 -m bench.coherent --shoal BIN`.

One node reads equal objects below three prefixes, whose freshness is `revalidate`, `coherent` and `immutable`, in
turn: before a lake on this machine, and before one that is 10 ms away. The directory is a Redis on this machine.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from net.redis_servers import SingleRedis
from real.lakes import LAKES, LakeUnavailable
from real.node import Node
from real.processes import free_port, run
from real.scratch import scratch

from bench.bed import BUCKET, KIB, contents
from bench.client import read
from bench.load import Get, Load, generate
from bench.process_facts import cpu_seconds
from bench.report import Goal, Page, Row, Spread
from bench.tier.bed import Options, TierBed
from bench.tier.delay import DelayRelay

SIZES, OBJECTS = (4 * KIB, 64 * KIB), 64
CONNECTIONS = (1, 16)
FRESHNESS = ("revalidate", "coherent", "immutable")
LAKE_S = 0.01
# A name that is new to the directory settles meanwhile.
SETTLED_S = 25
_TABLES = """
[cooperation]
mode = "directory"
listen = "127.0.0.1:{port}"
secret_key = "a secret of this cluster"

[directory]
url = "{url}"
"""
_RULE = """
[[freshness.rule]]
prefix = "s3://{bucket}/{freshness}/"
freshness = "{freshness}"
"""


@dataclass
class _Side:
    """The results of one freshness."""

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
        with scratch("shoal-coherent-") as folder, TierBed(options, folder, page) as bed:
            redis = bed.enter(SingleRedis(folder / "redis"))
            far = bed.enter(DelayRelay(bed.lake.url, LAKE_S))
            for where, lake_url in (("near", bed.lake.url), (f"{LAKE_S * 1e3:.0f} ms away", far.url)):
                _measure_before(bed, redis.url, where, lake_url)
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


def _measure_before(bed: TierBed, redis_url: str, where: str, lake_url: str) -> None:
    rules = "".join(_RULE.format(bucket=BUCKET, freshness=freshness) for freshness in FRESHNESS)
    tables = _TABLES.format(port=free_port(), url=redis_url) + rules
    node = bed.node(f"node-{where.replace(' ', '-')}", tables, lake_url=lake_url)
    for size in SIZES:
        for get in (get for freshness in FRESHNESS for get in _gets(freshness, size)):
            body = bytes(contents(get.key, size))
            bed.put(bed.lake.url, get.key, body)
            read(node.url, bed.account, get, memoryview(body))
    node.settle()
    time.sleep(SETTLED_S)
    for size in SIZES:
        for connections in CONNECTIONS:
            _measure(bed, node, where, size, connections)
    node.stop()


def _gets(freshness: str, size: int) -> list[Get]:
    return [Get(BUCKET, f"{freshness}/{size}-{number}") for number in range(OBJECTS)]


def _measure(bed: TierBed, node: Node, where: str, size: int, connections: int) -> None:
    sides = {freshness: _Side() for freshness in FRESHNESS}
    for turn in range(bed.options.rounds + 1):
        at = turn % len(FRESHNESS)
        for freshness in (*FRESHNESS[at:], *FRESHNESS[:at]):
            before = cpu_seconds([node.pid])
            load = generate(
                node.url,
                bed.account,
                _gets(freshness, size),
                bed.scratch,
                connections=connections,
                seconds=bed.options.seconds,
            )
            if load.bad_statuses or load.broken:
                raise RuntimeError(f"{freshness}: {load}")
            # The first round warms up.
            if turn:
                sides[freshness].loads.append(load)
                sides[freshness].cpu_us.append((cpu_seconds([node.pid]) - before) / load.requests * 1e6)
    case = f"warm read, {size // KIB} KiB, {connections} at once, the lake {where}"
    coherent = sides["coherent"]
    for other, goal in (("revalidate", Goal(1.0)), ("immutable", None)):
        pairs = list(zip(coherent.loads, sides[other].loads, strict=True))
        told = ", ".join(f"{freshness} {_shown(side)}" for freshness, side in sides.items())
        bed.page.add(
            Row(case, f"p50, coherent to {other}", Spread.of([a.p50_us / b.p50_us for a, b in pairs]), goal, told)
        )


def _shown(side: _Side) -> str:
    rate = median(load.requests / load.seconds for load in side.loads)
    return f"{median(load.p50_us for load in side.loads):.0f} µs ({rate:.0f}/s, {median(side.cpu_us):.0f} µs of CPU)"


if __name__ == "__main__":
    sys.exit(main())
