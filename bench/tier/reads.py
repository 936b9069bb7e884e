"""Warm reads below a rule against those of equal objects elsewhere, on one node: one look into the registry more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from real.node import Node

from bench.bed import BUCKET, KIB, contents
from bench.client import read
from bench.load import Get, Load, generate
from bench.report import Goal, Row, Spread

from .bed import BACK, EMBEDDED, ETCD, TierBed, of_engine, tables

SIZES, OBJECTS = (4 * KIB, 64 * KIB), 64
CONNECTIONS = (1, 16)
FRESHNESS = ("immutable", "revalidate")
# Where objects are: elsewhere; below the rule and at the lake; below the rule and dirty.
ELSEWHERE, CLEAN, DIRTY = "elsewhere/", f"{BACK}clean/", f"{BACK}dirty/"
GOAL = Goal(1.3)


@dataclass
class _Side:
    """Objects that are read, and the results of their runs."""

    prefix: str
    loads: list[Load]
    """Requests to etcd for each read."""
    looks: list[float]


def run(bed: TierBed, engine: str) -> None:
    """All cases with one engine of the registry, on two nodes of different freshness one after the other."""
    described, looks = of_engine(bed, engine)
    for freshness in FRESHNESS:
        node = bed.node(f"node-{freshness}", tables(described), freshness=freshness)
        for size in SIZES:
            _prepare(bed, node, f"{freshness}-{size}-", size)
            for connections in CONNECTIONS:
                _measure(bed, node, f"{engine}, {freshness}", (f"{freshness}-{size}-", size), connections, looks)
        # The next node would find its store in use.
        node.stop()


def embedded(bed: TierBed) -> None:
    """With the embedded registry."""
    run(bed, EMBEDDED)


def etcd(bed: TierBed) -> None:
    """With etcd."""
    run(bed, ETCD)


def _gets(prefix: str, name: str) -> list[Get]:
    return [Get(BUCKET, f"{prefix}{name}{number}") for number in range(OBJECTS)]


def _prepare(bed: TierBed, node: Node, name: str, size: int) -> None:
    """Writes the objects and reads them, so that all are in the cache. Dirty objects stay dirty for a day."""
    for prefix in (ELSEWHERE, CLEAN, DIRTY):
        for get in _gets(prefix, name):
            body = bytes(contents(get.key, size))
            if prefix == DIRTY:
                bed.put(node.url, get.key, body, "back")
            else:
                bed.put(bed.lake.url, get.key, body)
            read(node.url, bed.account, get, memoryview(body))
    node.settle()


def _measure(
    bed: TierBed, node: Node, named: str, objects: tuple[str, int], connections: int, looks: Callable[[], int]
) -> None:
    name, size = objects
    sides = [_Side(prefix, [], []) for prefix in (ELSEWHERE, CLEAN, DIRTY)]
    for turn in range(bed.options.rounds + 1):
        for side in (*sides[turn % 3 :], *sides[: turn % 3]):
            before = looks()
            load = generate(
                node.url,
                bed.account,
                _gets(side.prefix, name),
                bed.scratch,
                connections=connections,
                seconds=bed.options.seconds,
            )
            if load.bad_statuses or load.broken:
                raise RuntimeError(f"{side.prefix}: {load}")
            # The first round warms up.
            if turn:
                side.loads.append(load)
                side.looks.append((looks() - before) / load.requests)
    elsewhere = sides[0]
    case = f"warm read, {size // KIB} KiB, {connections} at once; {named}"
    for side, where in zip(sides[1:], ("clean", "dirty"), strict=True):
        ratios = [mine.p50_us / other.p50_us for mine, other in zip(side.loads, elsewhere.loads, strict=True)]
        told = (
            f"{_shown(elsewhere.loads)} elsewhere, {_shown(side.loads)} below, {median(side.looks):.2f} looks at etcd"
        )
        bed.page.add(Row(case, f"p50 of {where} objects below a rule to elsewhere", Spread.of(ratios), GOAL, told))


def _shown(loads: Sequence[Load]) -> str:
    rate = median(load.requests / load.seconds for load in loads)
    return f"{median(load.p50_us for load in loads):.0f} µs ({rate:.0f}/s)"
