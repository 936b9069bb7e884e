"""Measures warm reads of coherent objects: `PYTHONPATH=tests python3 -m bench.coherent --shoal BIN`.

One node reads equal objects below three prefixes, whose freshness is `revalidate`, `coherent` and `immutable`, in
turn: before a lake on this machine, and before one that is 10 ms away. The directory is a Redis on this machine.
"""

from __future__ import annotations

import sys
import time

from net.redis_servers import SingleRedis
from real.lakes import LakeUnavailable
from real.node import Node
from real.processes import free_port
from real.scratch import scratch

from bench.bed import BUCKET, KIB, contents
from bench.client import read
from bench.load import Get
from bench.report import Goal, Row, Spread
from bench.sides import append, measure, options_of
from bench.tier.bed import TierBed
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


def main() -> int:
    """Measures before both lakes, and prints a page."""
    options, page, results = options_of(__doc__, OBJECTS)
    try:
        with scratch("shoal-coherent-") as folder, TierBed(options, folder, page) as bed:
            redis = bed.enter(SingleRedis(folder / "redis"))
            far = bed.enter(DelayRelay(bed.lake.url, LAKE_S))
            for where, lake_url in (("near", bed.lake.url), (f"{LAKE_S * 1e3:.0f} ms away", far.url)):
                _measure_before(bed, redis.url, where, lake_url)
    except LakeUnavailable as reason:
        print(f"skipped: {reason}")
        return 0
    append(page, results)
    return 0


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
    sides = measure(bed, FRESHNESS, lambda freshness: (node, bed.account, _gets(freshness, size)), connections)
    case = f"warm read, {size // KIB} KiB, {connections} at once, the lake {where}"
    coherent, told = sides["coherent"], ", ".join(f"{freshness} {side}" for freshness, side in sides.items())
    for other, goal in (("revalidate", Goal(1.0)), ("immutable", None)):
        pairs = list(zip(coherent.loads, sides[other].loads, strict=True))
        bed.page.add(
            Row(case, f"p50, coherent to {other}", Spread.of([a.p50_us / b.p50_us for a, b in pairs]), goal, told)
        )


if __name__ == "__main__":
    sys.exit(main())
