"""Hits here, hits at a neighbour, and cold reads through both: D3N Fig. 7, dissertation Figs. 6.2 to 6.4."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from net.cluster import BUCKET, Cluster, Shape
from net.fabric import Rates, within
from net.objects import Read, ranges, whole
from net.reader import Outcome

from bench.load import Get, generate
from bench.process_facts import cpu_seconds

from .row import CLIENT_MBIT, LAKE_MBIT, MIB, NODE_MBIT, RACK_MBIT, Bed, Line, sound

_RATES = Rates(client=CLIENT_MBIT, node=NODE_MBIT, rack=RACK_MBIT, lake=LAKE_MBIT)
# All homes but for one block in ten thousand: the neighbour of the node that is asked.
_HOMES_AT_2 = (1, 10_000)
_NO_L1 = (0, 100)
_GIB = 1 << 30
_BLOCK, _BLOCK_BYTES = "4MiB", 4 * MIB
# Published rates are so many times ours.
_SCALE = 200
# The caches of dissertation 6.3.2 have links of 10 Gbit/s between them.
_PEER_MBIT = 50


def local(bed: Bed) -> list[Line]:
    """Measures a hit at the rack's own node against the lake. The paper has eight clients of eight reads each."""
    ratios = []
    with bed.cluster("local", Shape(2, _RATES)) as cluster:
        reads = _objects(cluster, "local", 32 * MIB // bed.haste)
        sound(cluster.read_through(1, reads))
        for _ in range(bed.rounds):
            lake, hit = sound(cluster.read_past(1, reads)), sound(cluster.read_through(1, reads * 2))
            _require(hit, "REVALIDATED")
            ratios.append(hit.mbit_per_s / lake.mbit_per_s)
    links = NODE_MBIT / LAKE_MBIT
    what = "local hit against the lake"
    return [Line(what, "5×", f"{links:.0f}×, the links' ratio, less 5%", ratios, "{:.2f}×", least=0.95 * links)]


def solo(bed: Bed) -> list[Line]:
    """Measures hits of a node that cooperates against those of a solo node, as fast as the processors allow."""
    ratios = []
    with bed.cluster("solo", Shape(3, Rates(), freshness="immutable", solo=[3])) as cluster:
        reads = _objects(cluster, "hits", 32 * MIB, 1 * MIB)
        for rack in (1, 3):
            sound(cluster.read_through(rack, reads))
        for _ in range(bed.rounds):
            together, alone = (_hits_per_s(bed, cluster, rack, reads) for rack in (1, 3))
            ratios.append(together / alone)
    what = "local hits of 1 MiB, cooperating against solo, links without a rate"
    return [Line(what, "–", "≥ 0.95", ratios, least=0.95)]


def remote(bed: Bed) -> list[Line]:
    """Measures hits at the neighbour, stored here and not, against local hits, and their cost for the nodes."""
    stored, not_stored = _remote_hits(bed, "stored", ()), _remote_hits(bed, "not stored", _NO_L1)
    what = "remote (L2) hit against local hit"
    cost = "CPU of both nodes for a GiB of"
    return [
        Line(f"{what}, stored at L1", "0.55", "≥ 0.75", stored.ratios, least=0.75),
        Line(f"{what}, not stored at L1", "0.85", "≥ 0.90", not_stored.ratios, least=0.90),
        Line(f"{cost} local hits, s", "–", "–", stored.cpu_here),
        Line(f"{cost} remote hits, stored, s", "–", "–", stored.cpu_there),
        Line(f"{cost} remote hits, not stored, s", "–", "–", not_stored.cpu_there),
    ]


@dataclass(frozen=True)
class _RemoteHits:
    """By round: throughput of remote hits against local ones, and the CPU time of both nodes for a GiB of each."""

    ratios: list[float]
    cpu_here: list[float]
    cpu_there: list[float]


def _remote_hits(bed: Bed, name: str, split: Sequence[int]) -> _RemoteHits:
    found = _RemoteHits([], [], [])
    unlimited = Rates(client=CLIENT_MBIT, node=NODE_MBIT, rack=RACK_MBIT)
    shape = Shape(2, unlimited, weights=_HOMES_AT_2, split=split)
    with bed.cluster(f"remote-{name}".replace(" ", "-"), shape) as cluster:
        for turn in range(bed.rounds):
            reads = _objects(cluster, f"remote-{turn}", 96 * MIB // bed.haste)
            sound(cluster.read_through(2, reads))
            there, cost_there = _costed(cluster, 1, reads)
            _require(there, "MISS")
            # If rack 1 keeps no copy, the clients of rack 2 read the objects at their own node.
            here, cost_here = _costed(cluster, 2 if split == _NO_L1 else 1, reads)
            _require(here, "REVALIDATED")
            if split == _NO_L1 and cluster.layers(1)[0]["blocks"]:
                raise RuntimeError("a node without room for L1 has stored something there")
            found.ratios.append(there.mbit_per_s / here.mbit_per_s)
            found.cpu_there.append(cost_there)
            found.cpu_here.append(cost_here)
    return found


def cold(bed: Bed) -> list[Line]:
    """Measures a cold read through L1 and L2, stored in both, against the lake."""
    ratios, traffic = [], []
    with bed.cluster("cold", Shape(2, _RATES, weights=_HOMES_AT_2)) as cluster:
        for turn in range(bed.rounds):
            reads = _objects(cluster, f"cold-{turn}", 64 * MIB // bed.haste)
            lake = sound(cluster.read_past(1, reads))
            before = cluster.fabric.lake_bytes()
            miss = sound(cluster.read_through(1, reads))
            _require(miss, "MISS")
            traffic.append((cluster.fabric.lake_bytes() - before) / miss.bytes)
            ratios.append(miss.mbit_per_s / lake.mbit_per_s)
    return [
        Line("cold read through L1 and L2 against the lake", "0.74", "≥ 0.95", ratios, least=0.95),
        Line("bytes on the lake links for each byte read cold, headers included", "–", "–", traffic),
    ]


def directory(bed: Bed) -> list[Line]:
    """Measures misses and remote hits of nodes that find blocks by a directory, and what they wait for it."""
    misses = []
    # Between the racks, as published, and as fast as the links of all their nodes.
    remote_hits: dict[int, list[float]] = {_PEER_MBIT: [], RACK_MBIT: []}
    looks_us: dict[str, list[float]] = {"shaped": [], "without a rate": []}
    with bed.cluster("directory", Shape(2, _RATES, block_size=_BLOCK, directory=True)) as cluster:
        for turn in range(bed.rounds):
            reads = _objects(cluster, f"directory-{turn}", 64 * MIB // bed.haste)
            lake = sound(cluster.read_past(1, reads))
            miss, look_us = _miss(cluster, reads)
            misses.append(miss.mbit_per_s / lake.mbit_per_s)
            looks_us["shaped"].append(look_us)
    for mbit, values in remote_hits.items():
        rates = Rates(client=CLIENT_MBIT, node=NODE_MBIT, rack=mbit)
        with bed.cluster(f"directory-remote-{mbit}", Shape(2, rates, block_size=_BLOCK, directory=True)) as cluster:
            for turn in range(bed.rounds):
                reads = _objects(cluster, f"remote-{turn}", 64 * MIB // bed.haste)
                sound(cluster.read_through(2, reads))
                hit = sound(cluster.read_through(1, reads))
                _require(hit, "MISS")
                values.append(hit.mbit_per_s / min(mbit, NODE_MBIT))
    with bed.cluster("directory-unshaped", Shape(2, Rates(), block_size=_BLOCK, directory=True)) as cluster:
        for turn in range(bed.rounds):
            reads = _objects(cluster, f"unshaped-{turn}", 64 * MIB // bed.haste)
            looks_us["without a rate"].append(_miss(cluster, reads, connections=1)[1])
    lines = [
        Line("directory: a miss against the lake", "1", "≥ 0.98", misses, least=0.98),
        Line(
            f"directory: remote hit against a link of {_PEER_MBIT} between the nodes (10 Gbit/s)",
            "0.88",
            "≥ 0.95",
            remote_hits[_PEER_MBIT],
            least=0.95,
        ),
        Line(
            f"directory: remote hit against the node's own link of {NODE_MBIT} (40 Gbit/s)",
            "–",
            "≥ 0.95",
            remote_hits[RACK_MBIT],
            least=0.95,
        ),
    ]
    # Megabits a second are bits a microsecond.
    block_us = 8 * _BLOCK_BYTES / LAKE_MBIT
    for (links, looks), time_us in zip(looks_us.items(), (block_us, block_us / _SCALE), strict=True):
        lines.append(
            Line(
                f"directory: a look, % of {time_us / 1e3:.0f} ms for a block of 4 MiB from the lake, links {links}",
                "negligible",
                "≤ 1",
                [100 * look / time_us for look in looks],
                "{:.2f}",
                most=1.0,
            )
        )
    return lines


def _miss(cluster: Cluster, reads: Sequence[Read], **settings: object) -> tuple[Outcome, float]:
    """Reads cold objects from the first node. Returns the outcome, and the mean time of a look in microseconds."""
    looks, micros = _looks(cluster, 1)
    miss = sound(cluster.read_through(1, reads, **settings))
    _require(miss, "MISS")
    looks_after, micros_after = _looks(cluster, 1)
    return miss, (micros_after - micros) / (looks_after - looks)


def _looks(cluster: Cluster, rack: int) -> tuple[int, int]:
    """Returns how often a node's reads have looked into the directory, and the microseconds that answers took."""
    metrics = dict(line.rsplit(" ", 1) for line in cluster.nodes[rack].metrics().splitlines() if line[:1] != "#")
    answered = metrics['shoal_directory_requests_total{request="look",outcome="answered"}']
    return int(answered), int(metrics['shoal_directory_answer_microseconds_total{request="look"}'])


def striping(bed: Bed) -> list[Line]:
    """Measures a cold object through four homes with a lake link each, through one home, and straight from the lake."""
    lines = []
    for homes, weights, published in ((4, (), "~2×"), (1, (1, 10_000, 1, 1), "–")):
        one, many = [], []
        with bed.cluster(f"striping-{homes}", Shape(4, _RATES, weights=weights)) as cluster:
            for turn in range(bed.rounds):
                size = 48 * MIB // bed.haste
                keys = [f"striping-{homes}-{turn}-{kind}" for kind in ("one", "many")]
                for key in keys:
                    cluster.put(key, size)
                lake = sound(cluster.read_past(1, [whole(keys[0], size)], connections=1)).mbit_per_s
                one.append(sound(cluster.read_through(1, [whole(keys[0], size)], connections=1)).mbit_per_s / lake)
                lake = sound(cluster.read_past(1, ranges(keys[1], size, 2 * MIB))).mbit_per_s
                many.append(sound(cluster.read_through(1, ranges(keys[1], size, 2 * MIB))).mbit_per_s / lake)
        to_reach, least = ("≥ 1×", 1.0) if homes > 1 else ("–", None)
        for how, values in (("read by one connection", one), ("its ranges read by eight", many)):
            what = f"cold object of {homes} home{'s' if homes > 1 else ''} against the lake, {how}"
            lines.append(Line(what, published, to_reach, values, "{:.2f}×", least=least))
    return lines


def _objects(cluster: Cluster, name: str, total: int, size: int = 4 * MIB) -> list[Read]:
    """Writes so many bytes to the lake as objects of this size, and returns the reads of them."""
    reads = [whole(f"{name}-{number}", size) for number in range(max(1, total // size))]
    for read in reads:
        cluster.put(read.key, read.size)
    return reads


def _require(outcome: Outcome, cache: str) -> None:
    if set(outcome.cache) != {cache}:
        raise RuntimeError(f"these reads should all be {cache}: {dict(outcome.cache)}")


def _costed(cluster: Cluster, rack: int, reads: Sequence[Read]) -> tuple[Outcome, float]:
    """Reads from a rack's node. Returns the outcome, and the CPU time of all nodes for a GiB."""
    pids = [node.pid for node in cluster.nodes.values()]
    before = cpu_seconds(pids)
    outcome = sound(cluster.read_through(rack, reads))
    return outcome, (cpu_seconds(pids) - before) * _GIB / outcome.bytes


def _hits_per_s(bed: Bed, cluster: Cluster, rack: int, reads: Sequence[Read]) -> float:
    load = generate(
        cluster.nodes[rack].url,
        cluster.lake.account,
        [Get(BUCKET, read.key) for read in reads],
        bed.folder / "requests",
        connections=8,
        seconds=3 if bed.haste == 1 else 1,
        within=within(f"client-{rack}"),
    )
    if load.bad_statuses or load.broken:
        raise RuntimeError(f"{load.bad_statuses} bad statuses, {load.broken} broken connections")
    return load.requests / load.seconds
