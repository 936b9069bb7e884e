"""C2P, live and simulated: its case study (C2P 4.2, Figs. 7 to 11) with the delays of its table 1."""

from __future__ import annotations

import csv
import json
import random
import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from net.cluster import BUCKET, Client, Cluster, Shape
from net.fabric import Rates
from net.objects import Read, whole
from real.processes import run
from real.wire import send

from .row import Bed, Line, sound
from .scenario import Scenario, scenario

_SEGMENT, _SEGMENTS, _OBJECTS, _READS = 64 << 10, 5, 500, 2000
# numpy's `power`: the density grows with the number as x^(a-1). The paper names no exponent; this is the middle one of
# those that the simulated rows try.
_EXPONENT = 3.0
_PEER_DELAY_MS, _LAKE_DELAY_MS = 50, 200
# A node keeps the room of four blocks free. A block is charged two pages and a name more than its bytes, and 264 pages
# are for folders and the like.
_CAPACITY_BYTES = int((128 + 4 + 0.5) * (_SEGMENT + 2 * 4096 + 128)) + 264 * 4096
# Points of Fig. 7. The first one lies between a hit and a miss.
_WITHIN_S = (0.15, 0.3, 0.45, 0.6)
_WRITES = 200
_TOLERANCE = 0.1
_POLICIES = ("lru", "c2p")
# The paper's own LRU (its Algorithm 1) is simulated only: nodes do not follow it without co-operation.
_ALGORITHM_1 = "closeness"
# Whole, in part, not at all; segments from the disks.
_PUBLISHED = {1: ("+6.7%", "−50%", "+4%", "−5%"), 4: ("+4.5%", "−43%", "+4%", "−3.5%")}
_PARTIAL_GOAL = {1: -0.5, 4: -0.43}


@dataclass(frozen=True)
class Course:
    """The objects that were found whole, in part and not at all, the segments from the lake, and what it cost."""

    complete: int
    partial: int
    none: int
    lake: int
    run_s: float = 0
    puts_s: float = 0
    deletes_s: float = 0
    within: tuple[float, ...] = ()
    messages: int = 0
    message_bytes: int = 0
    read_bytes: int = 0


def whole_objects(bed: Bed, nodes: int, clients: int) -> list[Line]:
    """Measures C2P against LRU and against Algorithm 1 with so many nodes and clients."""
    live: dict[str, list[Course]] = {policy: [] for policy in _POLICIES}
    simulated: dict[str, list[Course]] = {policy: [] for policy in (*_POLICIES, _ALGORITHM_1)}
    for turn in range(bed.rounds):
        reads = _reads(clients, turn, bed.haste)
        name = f"whole-objects-{nodes}-{clients}-{turn}"
        for policy, course in _simulated(bed, reads, nodes, name).items():
            simulated[policy].append(course)
        for policy in _POLICIES:
            live[policy].append(_live(bed, reads, nodes, f"{name}-{policy}", policy))
    return _lines(f"{nodes} nodes, {clients} client{'s' if clients > 1 else ''}", clients, live, simulated)


def _reads(clients: int, seed: int, haste: int) -> dict[int, Sequence[Read]]:
    """Returns each client's reads of whole objects by the power law."""
    chance = random.Random(f"{clients} {seed}")
    each = _READS // clients // haste
    return {client: [_object(chance) for _ in range(each)] for client in range(1, clients + 1)}


def _object(chance: random.Random) -> Read:
    number = int(chance.random() ** (1 / _EXPONENT) * _OBJECTS)
    return whole(f"object-{number}", _SEGMENT * _SEGMENTS)


def _scenario(reads: dict[int, Sequence[Read]], nodes: int) -> Scenario:
    path = Path(__file__).parent / "whole_objects" / "reads.toml"
    plain = scenario(path, 1, reads)
    text = re.sub(r"^nodes = \d+$", f"nodes = {nodes}", plain.experiment, flags=re.MULTILINE)
    return replace(plain, experiment=text)


def _simulated(bed: Bed, reads: dict[int, Sequence[Read]], nodes: int, name: str) -> dict[str, Course]:
    folder = bed.folder / name
    run([bed.lab, "simulate", _scenario(reads, nodes).write(folder)])
    with (folder / "results" / "results.csv").open(newline="") as results:
        rows = list(csv.DictReader(results))
    return {
        row["variant"]: Course(
            *(int(row[f"read_{found}"]) for found in ("hits", "partial_misses", "complete_misses")),
            lake=int(row["lake_requests"]),
            run_s=float(row["run_s"]),
        )
        for row in rows
    }


def _live(bed: Bed, reads: dict[int, Sequence[Read]], nodes: int, name: str, policy: str) -> Course:
    shape = Shape(
        nodes,
        Rates(),
        capacity=f"{_CAPACITY_BYTES}B",
        block_size="64KiB",
        freshness="immutable",
        split=(0, 100),
        policy=policy,
        peer_delay_ms=_PEER_DELAY_MS,
        lake_delay_ms=_LAKE_DELAY_MS,
        read_ahead=2 * _SEGMENTS,
    )
    keys = [f"object-{number}" for number in range(_OBJECTS)]
    with bed.cluster(name, shape) as cluster:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda key: cluster.put(key, _SEGMENT * _SEGMENTS), keys))
        racks = {client: 1 + (client - 1) % nodes for client in reads}
        _learn(cluster, sorted(set(racks.values())), keys)
        course = _run(cluster, [(racks[client], each) for client, each in reads.items()])
        puts_s, deletes_s = (_writes(cluster, method, keys[:_WRITES]) for method in ("PUT", "DELETE"))
        return replace(course, puts_s=puts_s, deletes_s=deletes_s)


def _learn(cluster: Cluster, racks: Sequence[int], keys: Sequence[str]) -> None:
    """Has the clients' nodes ask the lake about every object, which would delay the first read of each."""
    for rack in racks:
        url, account = cluster.nodes[rack].url, cluster.lake.account
        with ThreadPoolExecutor(32) as pool:
            answers = pool.map(lambda key: send(url, account, "HEAD", BUCKET, key).status, keys)  # noqa: B023
            if set(answers) != {200}:
                raise RuntimeError("an object cannot be read")


def _writes(cluster: Cluster, method: str, keys: Sequence[str]) -> float:
    """Writes objects of one segment through a node, or deletes them; returns the seconds."""
    url, account = cluster.nodes[1].url, cluster.lake.account
    body = b"." * _SEGMENT if method == "PUT" else b""
    began = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        answers = pool.map(lambda key: send(url, account, method, BUCKET, key, body=body).status, keys)
        refused = set(answers) - {200, 204}
        if refused:
            raise RuntimeError(f"a {method} was answered with {refused}")
    return time.monotonic() - began


def _run(cluster: Cluster, reads: Sequence[tuple[int, Sequence[Read]]]) -> Course:
    settings = {"connections": 1, "timeout_s": 120, "is_timed": True}
    before = _counts(cluster)
    clients = [Client(rack, cluster.plan([rack], each, **settings)) for rack, each in reads]
    for client in clients:
        client.go()
    outcomes = [sound(client.outcome()) for client in clients]
    for node in cluster.nodes.values():
        node.settle()
    after = _counts(cluster)
    rise = {name: after[name] - before[name] for name in after}
    times = [time for outcome in outcomes for time in outcome.times_s]
    return Course(
        rise["complete"],
        rise["partial"],
        rise["none"],
        lake=rise["lake"],
        run_s=max(outcome.ended_s for outcome in outcomes) - min(outcome.started_s for outcome in outcomes),
        within=tuple(sum(time < limit for time in times) / len(times) for limit in _WITHIN_S),
        messages=rise["messages"],
        message_bytes=rise["message_bytes"],
        read_bytes=sum(outcome.bytes for outcome in outcomes),
    )


def _counts(cluster: Cluster) -> dict[str, int]:
    pages = [node.metrics() for node in cluster.nodes.values()]

    def total(name: str) -> int:
        counter = re.compile(rf"^{re.escape(name)} (\d+)$", re.MULTILINE)
        return sum(int(value) for page in pages for value in counter.findall(page))

    status = [json.loads(node.ask("/status")) for node in cluster.nodes.values()]
    found = {
        word: total(f'shoal_object_reads_total{{blocks="several",found="{word}"}}')
        for word in ("complete", "partial", "none")
    }
    return {
        **found,
        "lake": sum(page["lake"]["requests"].get("get_object", 0) for page in status),
        "messages": total('shoal_messages_total{kind="cache-event",outcome="sent"}'),
        "message_bytes": total('shoal_message_bytes_total{direction="sent"}'),
    }


def _lines(what: str, clients: int, live: dict[str, list[Course]], simulated: dict[str, list[Course]]) -> list[Line]:
    facts = {"complete": "objects found whole", "partial": "in part", "none": "not at all", "lake": "lake reads"}
    lines = []
    for (fact, words), published in zip(facts.items(), _PUBLISHED[clients], strict=True):
        is_goal = fact == "partial"
        lines.append(
            Line(
                f"{what}: {words}, C2P against LRU",
                published,
                f"≤ {published}" if is_goal else "–",
                _gains(live, fact, "lru"),
                "{:+.1%}",
                most=_PARTIAL_GOAL[clients] if is_goal else None,
            )
        )
        for base, name in (("lru", "LRU"), (_ALGORITHM_1, "Algorithm 1")):
            lines.append(
                Line(
                    f"{what}: {words}, C2P against {name}, simulated",
                    published,
                    "–",
                    _gains(simulated, fact, base),
                    "{:+.1%}",
                )
            )
        for policy in _POLICIES:
            lines.append(_against(f"{what}, {policy}: {words}", fact, live[policy], simulated[policy]))
    for point, limit in enumerate(_WITHIN_S):
        lines.append(
            Line(
                f"{what}: more objects within {limit * 1e3:.0f} ms (points)",
                "–" if point else "+6",
                "–",
                [(c2p.within[point] - lru.within[point]) * 100 for lru, c2p in _pairs(live, "lru")],
                "{:+.1f}",
            )
        )
    for fact, words in (("puts_s", "PUTs"), ("deletes_s", "DELETEs")):
        lines.append(
            Line(
                f"{what}: time of {words}, C2P against LRU",
                "almost the same",
                "–",
                _gains(live, fact, "lru"),
                "{:+.1%}",
            )
        )
    lines.append(
        Line(
            f"{what}: events a second, all nodes",
            "20" if clients == 1 else "70",
            "–",
            [course.messages / course.run_s for course in live["c2p"]],
            "{:.0f}",
        )
    )
    lines.append(
        Line(
            f"{what}: bytes of an event in a batch",
            "< 100",
            "≤ 100",
            [course.message_bytes / max(1, course.messages) for course in live["c2p"]],
            "{:.0f}",
            most=100,
        )
    )
    lines.append(
        Line(
            f"{what}: bytes of events, % of the bytes read",
            "–",
            "≤ 0.1 at 1 MB a segment",
            [course.message_bytes / course.read_bytes * 100 * _SEGMENT / 1e6 for course in live["c2p"]],
            "{:.3f}",
            most=0.1,
        )
    )
    return lines


def _pairs(courses: dict[str, list[Course]], base: str) -> list[tuple[Course, Course]]:
    return list(zip(courses[base], courses["c2p"], strict=True))


def _gains(courses: dict[str, list[Course]], fact: str, base: str) -> list[float]:
    return [getattr(c2p, fact) / (getattr(alone, fact) or 1) - 1 for alone, c2p in _pairs(courses, base)]


def _against(what: str, fact: str, live: list[Course], simulated: list[Course]) -> Line:
    expected = sorted(getattr(course, fact) for course in simulated)[len(simulated) // 2]
    return Line(
        f"{what}, live in relation to simulated ({expected})",
        "–",
        "0.9 to 1.1",
        [getattr(one, fact) / max(1, getattr(other, fact)) for one, other in zip(live, simulated, strict=True)],
        least=1 - _TOLERANCE,
        most=1 + _TOLERANCE,
    )
