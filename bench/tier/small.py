"""Small writes into a tier that is near, against writes to a lake that is far away."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median, quantiles
from urllib.parse import urlsplit

from real.signing import encode_path, signed_headers

from bench.bed import BUCKET, KIB, MIB, contents
from bench.process_facts import cpu_seconds
from bench.report import Goal, Row, Spread

from .bed import BACK, TierBed, at_etcd, etcd_requests, tables
from .delay import DelayRelay

# Round trips as the testbed's links: the lake is five times as far as the tier. Long ones, so that the time of the
# stores themselves, which share this machine's processors and its disk, is the smaller part.
LAKE_S, TIER_S = 0.1, 0.02
# A write to the lake waits for one of its round trips; one into the tier for the store's PUT, and then the commit.
LAKE_TRIPS, TIER_TRIPS = 1, 2
SIZES = (4 * KIB, 64 * KIB, MIB)
# Two at a time: many would measure how much of their bytes two processors can carry.
CONNECTIONS, WRITES = 2, 100


def run(bed: TierBed) -> None:
    """Measures each size, in turn at both places."""
    store, etcd = bed.store(), bed.etcd()
    far = bed.enter(DelayRelay(bed.lake.url, LAKE_S))
    near = [bed.enter(DelayRelay(url, TIER_S)) for url in (store.url, etcd.endpoints)]
    node = bed.node("node", tables(at_etcd(store, near[1].url, near[0].url)), lake_url=far.url)
    bound = LAKE_TRIPS * LAKE_S / (TIER_TRIPS * TIER_S)
    bed.page.note(
        f"Small writes: round trips of {LAKE_S * 1e3:.0f} ms to the lake and {TIER_S * 1e3:.0f} ms to the tier's store "
        f"and its etcd; {LAKE_TRIPS} of the former is {bound:.2f} times {TIER_TRIPS} of the latter, a PUT and a "
        f"commit. {CONNECTIONS} connections, {WRITES} writes a run."
    )
    for size in SIZES:
        at_lake: list[list[float]] = []
        at_tier: list[list[float]] = []
        commits, cpu_ms = [], []
        for turn in range(bed.options.rounds + 1):
            at_lake.append(_write(bed, far.url, f"far/{size}-{turn}", size))
            before, cpu = etcd_requests(etcd.endpoints), cpu_seconds([node.pid])
            at_tier.append(_write(bed, node.url, f"{BACK}{size}-{turn}", size, "back"))
            commits.append((etcd_requests(etcd.endpoints) - before) / WRITES)
            cpu_ms.append((cpu_seconds([node.pid]) - cpu) / WRITES * 1e3)
        cost = f"{median(commits[1:]):.2f} requests to etcd and {median(cpu_ms[1:]):.1f} ms of CPU of the node a write"
        # In the first round the node opens connections, and asks the lake for its permission.
        _report(bed, size, bound, at_lake[1:], at_tier[1:], cost)


def _report(
    bed: TierBed,
    size: int,
    bound: float,
    at_lake: Sequence[Sequence[float]],
    at_tier: Sequence[Sequence[float]],
    cost: str,
) -> None:
    for name, percent in (("p50", 50), ("p99", 99)):
        far, near = ([_percentile(run, percent) * 1e3 for run in runs] for runs in (at_lake, at_tier))
        ratios = [lake / tier for lake, tier in zip(far, near, strict=True)]
        told = f"lake {median(far):.1f}, tier {median(near):.1f} ms; {cost}"
        goal = Goal(round(0.9 * bound, 2), at_least=True)
        bed.page.add(Row(f"small writes, {size // KIB} KiB", f"{name}, lake to tier", Spread.of(ratios), goal, told))


def _percentile(seconds: Sequence[float], percent: int) -> float:
    return quantiles(seconds, n=100, method="inclusive")[percent - 1]


def _write(bed: TierBed, url: str, name: str, size: int, mode: str = "") -> list[float]:
    return timed_puts(bed, url, (name, size), (WRITES, CONNECTIONS), mode)


def timed_puts(
    bed: TierBed, url: str, name_and_size: tuple[str, int], writes_and_connections: tuple[int, int], mode: str = ""
) -> list[float]:
    """Seconds of each write; each connection stays open and sends one after the other."""
    (name, size), (writes, connections) = name_and_size, writes_and_connections
    keys = [f"{name}-{number}" for number in range(writes + connections)]
    bodies = {key: bytes(contents(key, size)) for key in keys}
    shares = [keys[number::connections] for number in range(connections)]
    seconds: list[float] = []
    lock = threading.Lock()
    host = urlsplit(url).netloc

    def work(share: Sequence[str]) -> None:
        connection = http.client.HTTPConnection(host, timeout=60)
        taken = []
        for key in share:
            headers = {"x-shoal-write": mode} if mode else {}
            path = encode_path(BUCKET, key)
            headers = signed_headers(bed.account, "PUT", host, path, headers=headers)
            began = time.perf_counter()
            connection.request("PUT", path, bodies[key], headers)
            answer = connection.getresponse()
            body = answer.read()
            taken.append(time.perf_counter() - began)
            if answer.status != 200 or answer.headers.get("x-shoal-write", "") != mode:
                raise RuntimeError(f"{url} answered {answer.status} to {key}: {answer.headers} {body[:200]!r}")
        connection.close()
        with lock:
            # The first one opens the connection.
            seconds.extend(taken[1:])

    with ThreadPoolExecutor(connections) as pool:
        list(pool.map(work, shares))
    return seconds
