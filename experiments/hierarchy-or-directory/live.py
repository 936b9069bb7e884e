#!/usr/bin/env python3
"""Measures the ways to cooperate on four live nodes; see live.sh."""

from __future__ import annotations

import argparse
import csv
import json
import random
import re
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from net.cluster import Cluster, Shape
from net.fabric import Rates
from net.objects import Read, whole
from testbed.jobs import jobs, requests
from testbed.modes import RACKS, in_turn, sent
from testbed.row import Bed

from bench.process_facts import cpu_seconds

_HERE = Path(__file__).resolve().parent
_PAGE = _HERE / "README.md"
_BEGIN, _END = "<!-- live -->\n", "<!-- end -->"
_WAYS: dict[str, dict[str, object]] = {
    "hierarchy": {},
    "directory": {"directory": True},
    "duel": {"directory": True, "policy": "duel"},
}
_BLOCK, _BLOCK_BYTES = "128KiB", 128 << 10
_OBJECTS, _READS, _TABLES = 1024, 8, 8
# A tenth of the trace's bytes, and of these a two-thousandth; the trace has half of the published bytes.
_JOBS_SCALE = 20_480
_ROOMS = (50, 200)
_CONNECTIONS = 16
_GIB = 1 << 30
# The node that dies in the middle of a run. Its clients go on at the first.
_VICTIM = 4

Reads = dict[int, Sequence[Read]]


@dataclass(frozen=True)
class Run:
    """What one way cost. Bytes are for each byte of the objects, processor time for each GiB that clients read."""

    workload: str
    room_percent: int
    way: str
    killed: bool
    local_percent: float
    lake: float
    between_nodes: float
    cpu_s_per_gib: float
    read_again: int
    run_s: float


def main() -> int:
    """Runs every workload in every way, and writes what it found unless the run was only a try."""
    arguments = _parse()
    bed = Bed(arguments.shoal.resolve(), arguments.folder, "minio", 1, 8 if arguments.quick else 1)
    workloads = {"uniform": _uniform, "zipf": _zipf, "facebook": _facebook, "scan": _scan}
    runs = []
    for name, make in workloads.items():
        reads = make(bed.haste)
        for room in _ROOMS:
            for way in _WAYS:
                runs.append(_run(bed, name, reads, room, way, None))
                print(runs[-1], flush=True)
    for way in _WAYS:
        calm = next(run for run in runs if (run.workload, run.room_percent, run.way) == ("zipf", 200, way))
        runs.append(_run(bed, "zipf", _zipf(bed.haste), 200, way, calm.run_s / 2))
        print(runs[-1], flush=True)
    if not arguments.quick:
        _keep(runs)
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="experiments/hierarchy-or-directory/live.sh", description=__doc__)
    parser.add_argument("--shoal", type=Path, required=True, help="the binary")
    parser.add_argument("--quick", action="store_true", help="an eighth, nothing kept: does it work?")
    parser.add_argument("folder", type=Path, help="scratch")
    return parser.parse_args()


def _objects() -> list[Read]:
    return [whole(f"object-{number}", _BLOCK_BYTES) for number in range(_OBJECTS)]


def _uniform(haste: int) -> Reads:
    return in_turn(random.Random("uniform").choices(_objects(), k=_READS * _OBJECTS // haste))


def _zipf(haste: int) -> Reads:
    weights = [1 / rank for rank in range(1, _OBJECTS + 1)]
    return in_turn(random.Random("zipf").choices(_objects(), weights, k=_READS * _OBJECTS // haste))


def _scan(haste: int) -> Reads:
    """Each table is read whole, again and again, each time by the clients of the next rack."""
    objects, length = _objects(), _OBJECTS // _TABLES
    tables = [objects[first : first + length] for first in range(0, _OBJECTS, length)]
    spread: dict[int, list[Read]] = {rack: [] for rack in RACKS}
    for turn in range(max(2, _READS // haste)):
        for number, table in enumerate(tables):
            spread[1 + (number + turn) % len(RACKS)] += table
    return {**spread}


def _facebook(haste: int) -> Reads:
    return in_turn(requests(jobs(haste, _JOBS_SCALE), _BLOCK_BYTES))


def _run(bed: Bed, workload: str, reads: Reads, room: int, way: str, dies_after_s: float | None) -> Run:
    objects = {read.key: read.size for mine in reads.values() for read in mine}
    total = sum(objects.values())
    # A node keeps a tenth of its room free.
    capacity = total * room // 100 // len(RACKS) * 11 // 10
    shape = Shape(
        len(RACKS),
        Rates(client=400, rack=400, lake=100),
        capacity=f"{capacity}B",
        block_size=_BLOCK,
        freshness="immutable",
        period="3s",
    )
    name = f"{workload}-{room}-{way}" + ("-killed" if dies_after_s else "")
    with bed.cluster(name, replace(shape, **_WAYS[way])) as cluster:  # type: ignore[arg-type]
        for key, size in objects.items():
            cluster.put(key, size)
        return _measured(cluster, reads, total, (workload, room, way), dies_after_s)


def _measured(
    cluster: Cluster, reads: Reads, total: int, names: tuple[str, int, str], dies_after_s: float | None
) -> Run:
    settings = {"connections": _CONNECTIONS, "timeout_s": 60}
    plans = {rack: cluster.plan([rack, 1 if rack > 1 else 2], mine, **settings) for rack, mine in reads.items()}
    nodes = {rack: node for rack, node in cluster.nodes.items() if not (dies_after_s and rack == _VICTIM)}
    pids = [node.pid for node in nodes.values()]
    lake_bytes, cpu_s = cluster.fabric.lake_bytes(), cpu_seconds(pids)
    death = threading.Timer(dies_after_s or 0, cluster.signal, (_VICTIM, signal.SIGKILL))
    if dies_after_s:
        death.start()
    outcomes = cluster.read_all(plans).values()
    if dies_after_s:
        death.join()
        cluster.nodes.pop(_VICTIM).stop()
    for outcome in outcomes:
        if outcome.failed or outcome.wrong or (outcome.healed and not dies_after_s):
            raise RuntimeError(f"failed {outcome.failed[:2]}, wrong {outcome.wrong[:2]}, again {outcome.healed}")
    read_bytes = sum(outcome.bytes for outcome in outcomes)
    return Run(
        *names,
        killed=dies_after_s is not None,
        local_percent=100 * sent(cluster, "local") / read_bytes,
        lake=(cluster.fabric.lake_bytes() - lake_bytes) / total,
        between_nodes=_between_nodes(cluster) / total,
        cpu_s_per_gib=(cpu_seconds(pids) - cpu_s) * _GIB / read_bytes,
        read_again=sum(sum(outcome.healed.values()) for outcome in outcomes),
        run_s=max(outcome.ended_s for outcome in outcomes) - min(outcome.started_s for outcome in outcomes),
    )


def _between_nodes(cluster: Cluster) -> int:
    """Returns the bytes of blocks that nodes asked each other for, and of those that they pushed."""
    asked = re.compile(r"^shoal_peer_bytes_total{[^}]*} (\d+)$", re.MULTILINE)
    total = 0
    for node in cluster.nodes.values():
        total += sum(int(count) for count in asked.findall(node.metrics()))
        gwf = (json.loads(node.ask("/status"))["directory"] or {}).get("gwf") or {}
        total += gwf.get("pushes", {}).get("taken", 0) * _BLOCK_BYTES
    return total


def _keep(runs: Sequence[Run]) -> None:
    with (_HERE / "results" / "live.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, asdict(runs[0]).keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(run) for run in runs)
    text = _table(runs)
    before, rest = _PAGE.read_text().split(_BEGIN)
    _PAGE.write_text(before + _BEGIN + "\n" + text + "\n" + _END + rest.split(_END, 1)[1])


def _table(runs: Sequence[Run]) -> str:
    facts = {
        "local hits, %": ("local_percent", ".0f"),
        "from the lake, ×": ("lake", ".2f"),
        "between nodes, ×": ("between_nodes", ".2f"),
        "CPU of the nodes, s a GiB": ("cpu_s_per_gib", ".1f"),
    }
    lines = ["| 4 live nodes | " + " | ".join(facts) + " |", "|---" * (1 + len(facts)) + "|"]
    rows: dict[str, list[Run]] = {}
    for run in runs:
        name = f"{run.workload}, room for {run.room_percent}%" + (", a node killed" if run.killed else "")
        rows.setdefault(name, []).append(run)
    for name, ways in rows.items():
        # What a node counted that died is not known.
        known = ["lake"] if ways[0].killed else [fact for fact, _ in facts.values()]
        cells = [
            " / ".join(format(getattr(run, fact), form) for run in ways) if fact in known else "–"
            for fact, form in facts.values()
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
