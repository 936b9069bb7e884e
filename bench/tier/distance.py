"""Writes into a tier against writes to a lake 20 ms away, with a node as it is by default.

Also with `permission = "0s"`, where the lake is asked about each write, beside its bytes. The rates of the links
are to each other as the testbed's: lake and store share two processors here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from bench.bed import KIB, MIB
from bench.report import Goal, Row, Spread

from .bed import BACK, TierBed, at_etcd, tables
from .delay import DelayRelay
from .small import timed_puts

LAKE_S = 0.02
# The testbed's links to the lake (40 Mbit/s) and between nodes (200), each 12.5 times as fast.
LAKE_BYTES_PER_S, STORE_BYTES_PER_S = 62.5e6, 312.5e6


@dataclass(frozen=True)
class _Case:
    size: int
    writes: int
    connections: int
    goal: float | None


CASES = (_Case(4 * KIB, 100, 2, 0.35), _Case(MIB, 40, 2, None), _Case(64 * MIB, 4, 1, 0.6))


def run(bed: TierBed) -> None:
    """Measures each size, in turn at the lake and in the tier."""
    store, etcd = bed.store(), bed.etcd()
    far = bed.enter(DelayRelay(bed.lake.url, LAKE_S, LAKE_BYTES_PER_S))
    near = bed.enter(DelayRelay(store.url, 0, STORE_BYTES_PER_S))
    description = at_etcd(store, etcd.endpoints, near.url)
    nodes = {
        "by default": bed.node("remembers", tables(description), lake_url=far.url),
        'with `permission = "0s"`': bed.node("asks", tables(description, permission="0s"), lake_url=far.url),
    }
    bed.page.note(
        f"Distance: {LAKE_S * 1e3:.0f} ms to the lake at {LAKE_BYTES_PER_S / 1e6:.0f} MB/s, "
        f"{STORE_BYTES_PER_S / 1e6:.0f} MB/s to the tier's store; 100, 40 and 4 writes a run, over two connections, "
        "two and one."
    )
    for case in CASES:
        runs: dict[str, list[Sequence[float]]] = {"lake": [], **{name: [] for name in nodes}}
        for turn in range(bed.options.rounds + 1):
            places: list[tuple[str, Callable[[], Sequence[float]]]] = [
                ("lake", lambda case=case, turn=turn: _put(bed, far.url, f"far/{case.size}-{turn}", case))
            ]
            for name, node in nodes.items():
                key = f"{BACK}{node.name}-{case.size}-{turn}"
                places.append((name, lambda node=node, key=key, case=case: _put(bed, node.url, key, case, "back")))
            for name, measure in places:
                runs[name].append(measure())
        for name in nodes:
            # In the first round connections open.
            at_lake, at_tier = ([median(run) for run in runs[which][1:]] for which in ("lake", name))
            ratios = [tier / lake for tier, lake in zip(at_tier, at_lake, strict=True)]
            told = f"lake {median(at_lake) * 1e3:.1f}, tier {median(at_tier) * 1e3:.1f} ms"
            goal = Goal(case.goal) if case.goal and name == "by default" else None
            what = f"{case.size // KIB} KiB" if case.size < MIB else f"{case.size // MIB} MiB"
            bed.page.add(Row(f"20 ms to the lake, {what}, {name}", "p50, tier to lake", Spread.of(ratios), goal, told))


def _put(bed: TierBed, url: str, name: str, case: _Case, mode: str = "") -> Sequence[float]:
    return timed_puts(bed, url, (name, case.size), (case.writes, case.connections), mode)
