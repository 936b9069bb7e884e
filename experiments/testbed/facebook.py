"""Facebook's jobs over a wide and a narrow lake link: D3N Figs. 9 and 10, dissertation Figs. 6.10 and 6.11."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from net.cluster import Cluster, Shape
from net.fabric import Rates
from net.objects import Read, ranges
from net.reader import Outcome, Plan

from .jobs import REREAD, SCALE, Job, jobs, sizes
from .row import CLIENT_MBIT, MIB, NODE_MBIT, RACK_MBIT, Bed, Line, sound

# Requests cannot shrink as far as the trace, or there would be nothing but requests: 512 MB become 1 MiB.
_REQUEST_BYTES = MIB
# 5 TB in two nodes.
_CAPACITY_BYTES = 5_000_000_000_000 // 2 // SCALE
# "The production (non-adaptive) version of D3N, with a static cache of 50% to each cache layer" (dissertation 6.5.1).
_SPLIT = (50, 50)
_RACKS = (1, 2)
# The Gbit/s over both nodes, and our Mbit/s for each node. The paper has 80 and 12. Its lake gave between 60
# and 21.6 over the wide links (README): the rates in the middle stand for links of 80 to a slower lake.
_WIDE, _SLOWER_LAKES, NARROW = "80", ("60", "40"), "12"
_LINKS = {_WIDE: 200, "60": 150, "40": 100, NARROW: 30}
# Mappers of a rack at a time; the paper does not say.
_CONNECTIONS = 16


@dataclass(frozen=True)
class _Replay:
    """Seconds and lake bytes of the first third of the jobs, and of the others."""

    warmup_s: float
    measured_s: float
    warmup_lake_bytes: int
    measured_lake_bytes: int

    @property
    def whole_s(self) -> float:
        return self.warmup_s + self.measured_s


def facebook(bed: Bed, cut: str = REREAD, lakes: Sequence[str] = tuple(_LINKS)) -> list[Line]:
    """Measures a cut of the trace with the nodes and without them, in front of each of these lakes."""
    trace = jobs(bed.haste, trace=cut)
    lengths = sizes(trace)
    found: dict[str, list[tuple[_Replay, _Replay]]] = {}
    for name in lakes:
        rates = Rates(client=CLIENT_MBIT, node=NODE_MBIT, rack=RACK_MBIT, lake=_LINKS[name])
        shape = Shape(2, rates, capacity=f"{_CAPACITY_BYTES // bed.haste}B", block_size="256KiB", split=_SPLIT)
        with bed.cluster(f"facebook-{name}", shape) as cluster:
            for path, size in lengths.items():
                cluster.put(path, size)
            found[name] = [_round(cluster, trace, lengths, seed) for seed in range(1, bed.rounds + 1)]
    return _lines(found)


def _lines(found: dict[str, list[tuple[_Replay, _Replay]]]) -> list[Line]:
    narrow = found[NARROW]
    lines = []
    if _WIDE in found:
        lines = [
            _saved(f"lake link wide ({_WIDE}), the lake as fast", found[_WIDE]),
            *(_saved(f"lake link wide ({_WIDE}), the lake gives {lake}", found[lake]) for lake in _SLOWER_LAKES),
            *_seconds("wide", found[_WIDE]),
        ]
    return [
        *lines,
        Line(
            "Facebook, narrow (12): whole run, times faster than vanilla",
            "2.4×",
            "≥ 2.4×",
            [vanilla.whole_s / ours.whole_s for vanilla, ours in narrow],
            "{:.2f}×",
            least=2.4,
        ),
        Line(
            "Facebook, narrow: after a third of the jobs",
            "3×",
            "≥ 3×",
            [vanilla.measured_s / ours.measured_s for vanilla, ours in narrow],
            "{:.2f}×",
            least=3.0,
        ),
        Line(
            "Facebook, narrow: lake traffic after a third of the jobs, times less than vanilla",
            "> 4×",
            "≥ 4×",
            [vanilla.measured_lake_bytes / ours.measured_lake_bytes for vanilla, ours in narrow],
            "{:.2f}×",
            least=4.0,
        ),
        *_seconds("narrow", narrow),
    ]


def _saved(which: str, rounds: Sequence[tuple[_Replay, _Replay]]) -> Line:
    values = [ours.whole_s / vanilla.whole_s - 1 for vanilla, ours in rounds]
    return Line(f"Facebook, {which}: run time against vanilla", "−25%", "≤ −25%", values, "{:+.0%}", most=-0.25)


def _seconds(which: str, rounds: Sequence[tuple[_Replay, _Replay]]) -> list[Line]:
    return [
        Line(f"Facebook, {which}, {what}: run time, s", "–", "–", [replay.whole_s for replay in replays], "{:.1f}")
        for what, replays in zip(("vanilla", "nodes"), zip(*rounds, strict=True), strict=True)
    ]


def _round(cluster: Cluster, trace: Sequence[Job], lengths: dict[str, int], seed: int) -> tuple[_Replay, _Replay]:
    """Runs the trace without nodes, then with nodes with empty stores, on the same random racks."""
    third = len(trace) // 3
    phases = [_spread(cluster, part, lengths, seed) for part in (trace[:third], trace[third:])]
    past = [{rack: replace(plan, endpoints=[cluster.lake.url]) for rack, plan in phase.items()} for phase in phases]
    vanilla = _replay(cluster, past)
    cluster.restart_cold()
    return vanilla, _replay(cluster, phases)


def _spread(cluster: Cluster, part: Sequence[Job], lengths: dict[str, int], seed: int) -> dict[int, Plan]:
    """Spreads the requests over racks at random, in the order of the jobs; returns each rack's plan."""
    chance = random.Random(f"{seed} {part[0].path} {len(part)}")
    reads: dict[int, list[Read]] = {rack: [] for rack in _RACKS}
    for job in part:
        for read in ranges(job.path, job.input_bytes, _REQUEST_BYTES):
            reads[chance.choice(_RACKS)].append(replace(read, size=lengths[job.path]))
    return {rack: cluster.plan([rack], mine, connections=_CONNECTIONS, timeout_s=60) for rack, mine in reads.items()}


def _replay(cluster: Cluster, phases: Sequence[dict[int, Plan]]) -> _Replay:
    seconds, traffic = [], []
    for phase in phases:
        before = cluster.fabric.lake_bytes()
        outcomes: list[Outcome] = [sound(outcome) for outcome in cluster.read_all(phase).values()]
        traffic.append(cluster.fabric.lake_bytes() - before)
        seconds.append(max(o.ended_s for o in outcomes) - min(o.started_s for o in outcomes))
    return _Replay(seconds[0], seconds[1], traffic[0], traffic[1])
