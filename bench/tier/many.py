"""Very many dirty objects: the bytes of the registry for each, the cost of a LIST, and the work of a starting node."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import ClassVar

from real.node import Node
from real.processes import await_that
from real.wire import send

from bench.bed import BUCKET, require_ok
from bench.load import Put, generate
from bench.process_facts import cpu_seconds
from bench.report import Goal, Row, Spread

from .bed import BACK, EMBEDDED, ETCD, TierBed, dirty_objects, lake_requests, of_engine, tables

# Signatures hold for fifteen minutes, and a request takes some 600 bytes of memory before it is sent.
BATCH, CONNECTIONS = 20_000, 64
PAGE = 1000
# Objects at the lake alone, of which a LIST shows a page.
CLEAN = "clean/"
ENTRY_GOAL, LIST_GOAL = Goal(700), Goal(3)
MILLION = 1_000_000


def embedded(bed: TierBed) -> None:
    """Measures with the registry in a folder."""
    _run(bed, EMBEDDED)


def etcd(bed: TierBed) -> None:
    """Measures with the registry in etcd."""
    _run(bed, ETCD)


def _run(bed: TierBed, engine: str) -> None:
    described, requests = of_engine(bed, engine)
    # The account of the etcd is its own; a folder is looked at.
    size = _folder_size(bed.folder / f"tier-{engine}" / "registry") if engine == EMBEDDED else _etcd_size(described)
    # A node that starts looks at its cache, too, however much is dirty.
    node = bed.node("node", tables(described), capacity="16MiB", block_size="1MiB")
    _fill(bed, bed.lake.url, CLEAN, PAGE + PAGE // 10)
    none, empty = _restart(bed, node, requests), size()
    written, each = 0, 0.0
    for objects in (bed.options.objects // 10, bed.options.objects):
        began = time.monotonic()
        while written < objects:
            count = min(BATCH, objects - written)
            _fill(bed, node.url, f"{BACK}{written:08}-", count, "back")
            written += count
        bed.page.note(f"{engine}: {objects:,} dirty objects, the last of them within {time.monotonic() - began:.0f} s.")
        if dirty_objects(node) < objects:
            raise RuntimeError(f"{dirty_objects(node)} objects are dirty")
        each = (size() - empty) / objects
        told = "" if objects >= MILLION else f"a million, extrapolated: {each * MILLION / 1e6:.0f} MB"
        case = f"{objects:,} dirty objects, {engine}"
        bed.page.add(Row(case, "bytes of the registry each", Spread.of([each]), ENTRY_GOAL, told))
        _lists(bed, node, engine, objects)
    many = _restart(bed, node, requests)
    case = f"start after kill -9, {bed.options.objects:,} dirty objects, {engine}"
    for measure, ours, before in zip(_Start.MEASURES, many.values, none.values, strict=True):
        bed.page.add(Row(case, measure, Spread.of([ours]), None, f"with none {before:.2f}"))


@dataclass(frozen=True)
class _Start:
    """The time and the requests that a node needs when it starts again after `kill -9`."""

    MEASURES: ClassVar[Sequence[str]] = (
        "seconds until ready",
        "seconds until it takes writes below the rule",
        "requests to etcd within 3 s",
        "requests to the lake and the store within 3 s",
        "seconds of processor within 3 s",
    )
    values: Sequence[float]


def _fill(bed: TierBed, url: str, prefix: str, count: int, mode: str = "") -> None:
    """Writes `count` objects of a few bytes, each once."""
    headers = {"x-shoal-write": mode} if mode else {}
    puts = [Put(BUCKET, f"{prefix}{number:08}", f"object {number}", headers) for number in range(count)]
    connections = min(CONNECTIONS, count)
    load = generate(url, bed.account, puts, bed.scratch, connections=connections, seconds=600, once=True)
    if load.bad_statuses or load.broken or load.requests != count:
        raise RuntimeError(f"{count} objects below {prefix}: {load}")


def _lists(bed: TierBed, node: Node, engine: str, objects: int) -> None:
    """Measures pages of a thousand names: at the lake alone, through the node, and of dirty objects."""
    asked = (("the lake", bed.lake.url, CLEAN), ("not below", node.url, CLEAN), ("below", node.url, BACK))
    times: dict[str, list[float]] = {name: [] for name, _, _ in asked}
    for turn in range(4 * bed.options.rounds + 1):
        for name, url, prefix in asked:
            began = time.perf_counter()
            query = {"list-type": "2", "prefix": prefix, "max-keys": str(PAGE)}
            answer = send(url, bed.account, "GET", BUCKET, query=query)
            taken = time.perf_counter() - began
            require_ok(answer.status)
            if answer.body.count(b"<Key>") != PAGE:
                raise RuntimeError(f"{name}: {answer.body.count(b'<Key>')} names on a page")
            if turn:
                times[name].append(taken)
    told = ", ".join(f"{name} {median(taken) * 1e3:.1f}" for name, taken in times.items()) + " ms"
    ratios = [ours / lake for ours, lake in zip(times["below"], times["the lake"], strict=True)]
    case = f"LIST of {PAGE:,} of {objects:,} dirty objects, {engine}"
    bed.page.add(Row(case, "time to the lake's alone", Spread.of(ratios), LIST_GOAL, told))


def _restart(bed: TierBed, node: Node, requests: Callable[[], int]) -> _Start:
    """Kills a node and starts it again. Tests whether it takes writes only after counting everything else."""
    os.kill(node.pid, signal.SIGKILL)
    node.stop()
    before, began = requests(), time.monotonic()
    node.start()
    ready = time.monotonic() - began
    time.sleep(3)
    counted = (requests() - before, lake_requests(node), cpu_seconds([node.pid]))
    await_that("the node takes writes", lambda: _takes_writes(bed, node))
    return _Start((ready, time.monotonic() - began, *counted))


def _takes_writes(bed: TierBed, node: Node) -> bool:
    headers = {"x-shoal-write": "back"}
    answer = send(node.url, bed.account, "PUT", BUCKET, f"{BACK}probe", headers=headers, body=b"probe")
    return answer.headers.get("x-shoal-write") == "back"


def _folder_size(folder: Path) -> Callable[[], int]:
    """Bytes of disk, not of length: the file has holes."""
    return lambda: sum(file.stat().st_blocks * 512 for file in folder.iterdir())


def _etcd_size(described: str) -> Callable[[], int]:
    """Returns a function that compacts old revisions of one member and returns the bytes in use."""
    url = described.partition('registry = "')[2].partition('"')[0]

    def ask(path: str, body: dict[str, object]) -> dict[str, str]:
        request = urllib.request.Request(f"{url}/v3/{path}", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=60) as answer:
            found: dict[str, str] = json.load(answer)
        return found

    def size() -> int:
        revision = ask("kv/range", {"key": "AA=="})["header"]["revision"]  # type: ignore[index]
        ask("kv/compaction", {"revision": revision, "physical": True})
        time.sleep(1)
        return int(ask("maintenance/status", {})["dbSizeInUse"])

    return size
