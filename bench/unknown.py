"""Measures warm reads of clients whose keys no node knows: `PYTHONPATH=tests python3 -m bench.unknown --shoal BIN`.

Three nodes before one lake have the same objects and answer the same signed requests in turn. One knows the key and
asks the lake about each read (`revalidate`), one does not know it (`unknown_identities = "lake"`), and one knows it
and serves from its cache (`immutable`). The lake is on this machine, and then 10 ms away.
"""

from __future__ import annotations

import sys
import time

from real.lakes import LakeUnavailable
from real.node import Node
from real.scratch import scratch

from bench.bed import BUCKET, KIB, MIB, contents
from bench.client import read
from bench.load import Get
from bench.report import Goal, Row, Spread
from bench.sides import append, measure, options_of
from bench.tier.bed import TierBed
from bench.tier.delay import DelayRelay

SIZES, OBJECTS = (4 * KIB, 64 * KIB, MIB), 64
CONNECTIONS = (1, 16)
LAKE_S = 0.01
UNKNOWN, REVALIDATE, HIT = "unknown", "revalidate", "hit"
NODES = (REVALIDATE, UNKNOWN, HIT)


def main() -> int:
    """Measures before both lakes, and prints a page."""
    options, page, results = options_of(__doc__, OBJECTS)
    try:
        with scratch("shoal-unknown-") as folder, TierBed(options, folder, page) as bed:
            far = bed.enter(DelayRelay(bed.lake.url, LAKE_S))
            for where, lake_url in (("near", bed.lake.url), (f"{LAKE_S * 1e3:.0f} ms away", far.url)):
                _measure_before(bed, where, lake_url)
    except LakeUnavailable as reason:
        print(f"skipped: {reason}")
        return 0
    append(page, results)
    return 0


def _measure_before(bed: TierBed, where: str, lake_url: str) -> None:
    nodes = {name: bed.enter(_node(bed, name, where, lake_url)) for name in NODES}
    gets = [(get, bytes(contents(get.key, size))) for size in SIZES for get in _gets(size)]
    for get, body in gets:
        bed.put(bed.lake.url, get.key, body)
    # A version is not confirmed if it was read in the second of its date.
    time.sleep(2)
    for get, body in gets:
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
        freshness="revalidate" if name == REVALIDATE else "immutable",
        environment=own,
    )


def _gets(size: int) -> list[Get]:
    return [Get(BUCKET, f"{size}-{number}") for number in range(OBJECTS)]


def _measure(bed: TierBed, nodes: dict[str, Node], where: str, size: int, connections: int) -> None:
    sides = measure(bed, NODES, lambda name: (nodes[name], bed.account, _gets(size)), connections)
    case = f"warm read, {size // KIB} KiB, {connections} at once, the lake {where}"
    shown = ", ".join(f"{name} {side}" for name, side in sides.items())
    for other, goal in ((REVALIDATE, Goal(1.1)), (HIT, None)):
        pairs = zip(sides[UNKNOWN].loads, sides[other].loads, strict=True)
        spread = Spread.of([one.p50_us / another.p50_us for one, another in pairs])
        bed.page.add(Row(case, f"p50, {UNKNOWN} to {other}", spread, goal, shown))


if __name__ == "__main__":
    sys.exit(main())
