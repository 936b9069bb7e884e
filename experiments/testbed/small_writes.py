"""Small writes on their way to the disk of a lake: dissertation 6.7, Fig. 6.16."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

from net.cluster import BACK, BUCKET, LAKES, Remote
from net.fabric import prepare
from real.lakes import Lake, LakeUnavailable, ceph
from real.node import Node
from real.processes import await_that
from real.wire import send

from bench.counting import CountingRelay
from bench.tier.bed import dirty_objects

from .disk import Counts, Disk, Watch
from .replay import Replay, Replayed, Step
from .row import MIB, Bed, Line, Unsound
from .trace1 import Request, requests


@dataclass(frozen=True)
class _Run:
    """What one mode did in one round."""

    """Percents of each second while writes and flushes go on."""
    busy: Sequence[float]
    """From the first write until the lake has everything on its disk."""
    counts: Counts
    objects: int
    object_bytes: int
    asked: Counter[str]
    """Milliseconds, by kind."""
    took_ms: dict[str, Sequence[float]]


# Published is a lake of 63 disks: 48 clients send 32 requests at a time each, and four caches send it 1 GB/s each at
# most. Our disk has its share.
_DISKS_PUBLISHED = 63
_CONNECTIONS = 48 * 32 // _DISKS_PUBLISHED
_LAKE_BYTES_PER_S = 4e9 / _DISKS_PUBLISHED
_AGE_S = 60.0
_WRITING_S = 2 * _AGE_S
# Packs are 32 MB, as published, and wait so long for more, by default.
_IDLE_MS = 10_000
# The rate is not published. With it, all objects of a run, once at the lake and once in the tier, are 4 GB.
_REQUESTS_PER_S = 40.0
_IMAGE_BYTES = 24 << 30
# Flushed objects are read at the lake, as published: there is no room to keep them.
_CAPACITY_BYTES = 64 * MIB
_COLD_READS = 200
_AROUND, _BACK, _PACKED = "around", "back", "packed"
# "By 400% over the case of no write-back cache and 200% over the case without object coalescing" (6): a quarter, half.
_LOADS = {_AROUND: 4.0, _BACK: 2.0}
# Percents of a second, mostly, and the most: of disks that turn. Ours does not, so only ratios are to be reached.
_PUBLISHED = {_AROUND: ("40 to 60", "100"), _PACKED: ("below 15", "20")}
_PERCENTS = (50, 99)
_READS = {"read": "a read of the trace", "cold": "a read at the lake, one at a time, cache empty"}
_FACTS: Sequence[tuple[str, Callable[[_Run], float], str]] = (
    ("busy ms of the disk for an object", lambda run: run.counts.busy_ms / run.objects, "{:.2f}"),
    ("ms of all requests to the disk for an object", lambda run: run.counts.requests_ms / run.objects, "{:.2f}"),
    ("writes on the disk for an object", lambda run: run.counts.writes / run.objects, "{:.2f}"),
    ("flushes of the disk (fsync) for an object", lambda run: run.counts.flushes / run.objects, "{:.2f}"),
    ("bytes on the disk for a byte", lambda run: run.counts.written_bytes / run.object_bytes, "{:.2f}"),
    ("PUTs at the lake for an object", lambda run: run.asked["PUT"] / run.objects, "{:.4f}"),
    ("other requests but GETs at the lake for an object", lambda run: _others(run.asked) / run.objects, "{:.4f}"),
)
_TABLES = """
[write]
age = "{age_ms}ms"
permission = "{permission}"

[[write.rule]]
prefix = "s3://{bucket}/{back}"
mode = "back"
{pack}
[[tier]]
name = "near"
folder = "{folder}"
capacity = "64GiB"
"""
_PACK = """pack = true
pack_as = "{keeper}"
pack_idle = "{idle_ms}ms"
"""


def small_writes(bed: Bed, lake: str = "") -> list[Line]:
    """Measures the lake's disk while objects are written around, back, and back and packed."""
    kind = lake or bed.lake
    prepare()
    runs: dict[str, list[_Run]] = {_AROUND: [], _BACK: [], _PACKED: []}
    for turn in range(bed.rounds):
        modes = list(runs)
        for mode in (*modes[turn % 3 :], *modes[: turn % 3]):
            runs[mode].append(_run(bed, kind, mode, turn))
    return _lines(f"small writes, {kind}", runs)


def _lines(what: str, runs: dict[str, list[_Run]]) -> list[Line]:
    packed = runs[_PACKED]
    lines = [
        Line(
            f"{what}: busy time of the disk, {mode} against packed",
            f"{least:.0f}×",
            f"≥ {least:.0f}×",
            [other.counts.busy_ms / mine.counts.busy_ms for other, mine in zip(runs[mode], packed, strict=True)],
            "{:.1f}×",
            least=least,
        )
        for mode, least in _LOADS.items()
    ]
    for percent in _PERCENTS:
        for kind, name in _READS.items():
            took, before = (
                [_percentile(run.took_ms[kind], percent) for run in runs[mode]] for mode in (_PACKED, _AROUND)
            )
            ratios = [mine / other for mine, other in zip(took, before, strict=True)]
            line = f"{what}: {name}, packed against around, p{percent}"
            lines.append(Line(line, "1", "≤ 1.1×", ratios, "{:.2f}×", most=1.1))
    for mode, each in runs.items():
        lines += _lines_of_mode(f"{what}, {mode}", mode, each)
    return lines


def _lines_of_mode(what: str, mode: str, runs: Sequence[_Run]) -> list[Line]:
    middle, peak = _PUBLISHED.get(mode, ("–", "–"))
    busy = f"{what}: busy, % of a second"
    lines = [
        Line(f"{busy}, median", middle, "–", [median(run.busy) for run in runs], "{:.1f}"),
        Line(f"{busy}, p99", "–", "–", [_percentile(run.busy, 99) for run in runs], "{:.1f}"),
        Line(f"{busy}, most", peak, "–", [max(run.busy) for run in runs], "{:.1f}"),
    ]
    for name, fact, form in _FACTS:
        lines.append(Line(f"{what}: {name}", "–", "–", [fact(run) for run in runs], form))
    for kind, name in {"write": "a write", **_READS}.items():
        for percent in _PERCENTS:
            took = [_percentile(run.took_ms[kind], percent) for run in runs]
            lines.append(Line(f"{what}: {name}, p{percent}, ms", "–", "–", took, "{:.1f}"))
    return lines


def _run(bed: Bed, kind: str, mode: str, turn: int) -> _Run:
    age_s = _AGE_S / bed.haste
    trace = requests(_REQUESTS_PER_S, _WRITING_S / bed.haste, turn)
    written = [one for one in trace if one.is_write]
    with ExitStack() as stack:
        folder = bed.folder / f"small-writes-{kind}-{mode}-{turn}"
        _require_room(bed.folder, sum(one.size for one in written))
        stack.callback(shutil.rmtree, folder)
        disk, lake = stack.enter_context(_lake(folder / "lake", kind))
        relay = stack.enter_context(CountingRelay(lake.url, _LAKE_BYTES_PER_S))
        node = stack.enter_context(_node(bed, folder, lake, relay.url, mode))
        watch = stack.enter_context(Watch(disk))
        client = Remote(None, "testbed.replay", _plan(node, lake, trace, mode))
        relay.take_requests()
        before = disk.counts()
        client.go()
        done = Replayed(**json.loads(client.last_line()))
        if max(done.late_s) > age_s / 10:
            raise Unsound(f"{mode}: a request began {max(done.late_s):.1f} s too late: this machine is too slow")
        if mode != _AROUND:
            await_that("the lake has everything", lambda: dirty_objects(node) == 0, 10 * age_s)
        disk.sync()
        counts = disk.counts().since(before)
        busy = watch.busy(done.started_s + age_s, done.ended_s)
        asked = relay.take_requests()
        run = _Run(
            busy,
            counts,
            len(written),
            sum(one.size for one in written),
            asked,
            {**_took(trace, done), "cold": _cold(node, lake, written, mode)},
        )
    print(f"{kind}, {mode}, round {turn}: busy {median(busy):.0f}%, {counts}, {dict(asked)}", flush=True)
    return run


def _require_room(folder: Path, object_bytes: int) -> None:
    """Raises if the machine's disk has no room for the lake, the tier, and as much again for everyone else."""
    needed = 4 * object_bytes
    if shutil.disk_usage(folder).free < needed:
        raise LakeUnavailable(f"{needed / 1e9:.0f} GB must be free on the disk of {folder}")


def _took(trace: Sequence[Request], done: Replayed) -> dict[str, list[float]]:
    took: dict[str, list[float]] = {"write": [], "read": []}
    for one, seconds in zip(trace, done.seconds, strict=True):
        took["write" if one.is_write else "read"].append(seconds * 1e3)
    return took


def _cold(node: Node, lake: Lake, written: Sequence[Request], mode: str) -> Sequence[float]:
    """Reads some of the objects one after the other, and returns the milliseconds of each."""
    node.restart_cold()
    chosen = random.Random(len(written)).sample(written, min(_COLD_READS, len(written)))
    # The first ones open connections, and have the map of packs read.
    steps = [Step(0, "GET", _key(mode, one), one.size) for one in (*chosen[:5], *chosen)]
    client = Remote(None, "testbed.replay", _replay(node, lake, steps, 1, ""))
    client.go()
    return [seconds * 1e3 for seconds in Replayed(**json.loads(client.last_line())).seconds[5:]]


def _plan(node: Node, lake: Lake, trace: Sequence[Request], mode: str) -> str:
    steps = [Step(one.at_s, "PUT" if one.is_write else "GET", _key(mode, one), one.size) for one in trace]
    return _replay(node, lake, steps, _CONNECTIONS, _AROUND if mode == _AROUND else _BACK)


def _replay(node: Node, lake: Lake, steps: Sequence[Step], connections: int, mode: str) -> str:
    account = lake.account
    return Replay(node.url, account.access_key, account.secret_key, BUCKET, steps, connections, mode).to_json()


def _key(mode: str, request: Request) -> str:
    return f"{'around/' if mode == _AROUND else BACK}{request.number:06}"


def _node(bed: Bed, folder: Path, lake: Lake, lake_url: str, mode: str) -> Node:
    """Returns a node in front of the lake, with a tier in a folder of the machine's disk unless it writes around."""
    described = ""
    if mode != _AROUND:
        idle_ms = _IDLE_MS // bed.haste
        pack = _PACK.format(keeper=lake.account.access_key, idle_ms=idle_ms) if mode == _PACKED else ""
        described = tables(folder / "tier", _AGE_S / bed.haste, pack=pack)
    capacity = f"{_CAPACITY_BYTES}B"
    return Node(bed.binary, folder / "node", lake_url, [lake.account], capacity=capacity, tables=described)


def tables(folder: Path, age_s: float, *, permission: str = "1m", pack: str = "") -> str:
    """Returns tables of a node that writes back into a tier in this folder."""
    return _TABLES.format(
        age_ms=round(age_s * 1e3), permission=permission, bucket=BUCKET, back=BACK, pack=pack, folder=folder
    )


@contextmanager
def _lake(folder: Path, kind: str) -> Iterator[tuple[Disk, Lake]]:
    """Starts a lake of this kind, whose data have a disk of their own; Ceph has one OSD, on it."""
    at = folder / ("osd.0" if kind == "ceph" else "disk")
    with ExitStack() as stack:
        disk = Disk(folder.with_name("disk.img"), at, _IMAGE_BYTES)
        stack.callback(disk.remove)
        lake = stack.enter_context(ceph.start(folder) if kind == "ceph" else LAKES[kind](at / "lake"))
        await_that("the lake has a bucket", lambda: send(lake.url, lake.account, "PUT", BUCKET).status == 200)
        yield disk, lake


def _others(asked: Counter[str]) -> int:
    return asked.total() - asked["PUT"] - asked["GET"]


def _percentile(values: Sequence[float], percent: int) -> float:
    return quantiles(values, n=100, method="inclusive")[percent - 1]
