"""The cost of a tier for requests outside its rules, and for readers while its cleaner works."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from types import TracebackType

from real.node import Node
from real.processes import run as run_program

from bench.bed import BUCKET, KIB, MIB, contents
from bench.client import read
from bench.load import Get, Load, Put, Request, generate
from bench.process_facts import cpu_seconds
from bench.report import Goal, Row, Spread

from .bed import BACK, TierBed, dirty_objects, in_folder, tables

HOT, OBJECTS = "hot/", 64
RATE, CPU, P99 = Goal(0.95, at_least=True), Goal(1.05), Goal(1.2)
# Readers beside the cleaner rest between their requests: on processors that have nothing left, everything waits.
READERS, REST_MS = 16, 10
# Enough for a run of some seconds; the machine's disk and processors carry the lake as well.
DIRTY, DIRTY_BYTES = 96, 4 * MIB


def outside(bed: TierBed) -> None:
    """A node with a tier against one without, on names that no rule is about.

    Another one without a tier shows the noise.
    """
    nodes = [
        bed.node("with", tables(in_folder(bed.folder / "tier")), freshness="immutable"),
        bed.node("without", freshness="immutable"),
        bed.node("equal", freshness="immutable"),
    ]
    text = "x" * (4 * KIB)
    puts = [Put(BUCKET, f"outside/{number}", text) for number in range(256)]
    cases: list[tuple[str, Sequence[Request], int]] = [
        ("hot reads of 4 KiB", _hot(bed, nodes, 4 * KIB), 16),
        ("hot reads of 64 KiB", _hot(bed, nodes, 64 * KIB), 16),
        ("writes around of 4 KiB", puts, 8),
    ]
    for name, requests, connections in cases:
        runs: dict[str, list[tuple[float, float]]] = {node.name: [] for node in nodes}
        for turn in range(bed.options.rounds + 1):
            for node in (*nodes[turn % 3 :], *nodes[: turn % 3]):
                before = cpu_seconds([node.pid])
                load = _load(bed, node, requests, connections)
                if turn:
                    cpu = (cpu_seconds([node.pid]) - before) / load.requests
                    runs[node.name].append((load.requests / load.seconds, cpu * 1e6))
        for index, (measure, unit, goal) in enumerate((("requests", "/s", RATE), ("CPU per request", " µs", CPU))):
            for ours in ("with", "equal"):
                mine, plain = ([one[index] for one in runs[node]] for node in (ours, "without"))
                ratios = [a / b for a, b in zip(mine, plain, strict=True)]
                told = f"{median(mine):.0f}{unit}, without a tier {median(plain):.0f}{unit}"
                which = "with a tier" if ours == "with" else "another without a tier"
                case = f"outside the rules: {name}, {which}"
                bed.page.add(Row(case, measure, Spread.of(ratios), goal if ours == "with" else None, told))


def cleaning(bed: TierBed) -> None:
    """Hot reads alone, while the cleaner brings objects to the lake, and while a client writes the same to the lake.

    The last is the share of the machine: on two processors the lake itself disturbs readers.
    """
    node = bed.node("node", tables(in_folder(bed.folder / "tier")), freshness="immutable")
    for size in (4 * KIB, 64 * KIB):
        gets = _hot(bed, (node,), size)
        loads: dict[str, list[Load]] = {"alone": [], "cleaning": [], "a client writes": []}
        flushed: list[float] = []
        for turn in range(bed.options.rounds + 1):
            name = f"{size}-{turn}"
            besides: dict[str, Callable[[], AbstractContextManager[object]]] = {
                "alone": nullcontext,
                "cleaning": partial(_Beside, partial(_flush, bed, node)),
                "a client writes": partial(_Beside, partial(_write_at_lake, bed, name)),
            }
            _dirty(bed, node, name)
            for beside, begin in besides.items():
                before = dirty_objects(node)
                with begin():
                    load = _load(bed, node, gets, READERS, REST_MS)
                    left = dirty_objects(node)
                if turn:
                    loads[beside].append(load)
                    if beside == "cleaning":
                        flushed.append((before - left) * DIRTY_BYTES / load.seconds / MIB)
            if dirty_objects(node):
                raise RuntimeError("a flush has left objects")
        for beside in ("cleaning", "a client writes"):
            for measure, goal in (("p99_us", P99 if beside == "cleaning" else None), ("p50_us", None)):
                ours, alone = ([getattr(load, measure) for load in loads[side]] for side in (beside, "alone"))
                ratios = [a / b for a, b in zip(ours, alone, strict=True)]
                told = f"alone {median(alone):.0f}, beside {median(ours):.0f} µs"
                if beside == "cleaning":
                    told += f"; {median(flushed):.0f} MiB/s to the lake"
                case = f"hot reads of {size // KIB} KiB, {beside}"
                bed.page.add(Row(case, f"{measure.removesuffix('_us')} to that alone", Spread.of(ratios), goal, told))


def _hot(bed: TierBed, nodes: Sequence[Node], size: int) -> list[Get]:
    """Returns objects that all of these nodes have on their disks."""
    gets = [Get(BUCKET, f"{HOT}{size}-{number}") for number in range(OBJECTS)]
    for get in gets:
        body = bytes(contents(get.key, size))
        bed.put(bed.lake.url, get.key, body)
        for node in nodes:
            read(node.url, bed.account, get, memoryview(body))
    for node in nodes:
        node.settle()
    return gets


def _load(bed: TierBed, node: Node, requests: Sequence[Request], connections: int, pause_ms: int = 0) -> Load:
    load = generate(
        node.url,
        bed.account,
        requests,
        bed.scratch,
        connections=connections,
        seconds=bed.options.seconds,
        pause_ms=pause_ms,
    )
    if load.bad_statuses or load.broken:
        raise RuntimeError(f"{node.name}: {load}")
    return load


def _dirty(bed: TierBed, node: Node, name: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        keys = [f"{BACK}{name}-{number}" for number in range(DIRTY)]
        list(pool.map(lambda key: bed.put(node.url, key, bytes(contents(key, DIRTY_BYTES)), "back"), keys))
    node.settle()


def _flush(bed: TierBed, node: Node) -> None:
    run_program([bed.options.binary, "flush", "--node", node.admin])


def _write_at_lake(bed: TierBed, name: str) -> None:
    """Writes objects to the lake, as many at a time as the cleaner flushes."""
    with ThreadPoolExecutor(8) as pool:
        keys = [f"beside/{name}-{number}" for number in range(DIRTY)]
        list(pool.map(lambda key: bed.put(bed.lake.url, key, bytes(contents(key, DIRTY_BYTES))), keys))


@dataclass
class _Beside:
    """Work in a thread while the block runs; the block ends when the work has."""

    work: Callable[[], None]
    _failed: list[BaseException] = field(default_factory=list)
    _thread: threading.Thread | None = None

    def __enter__(self) -> _Beside:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is not None:
            self._thread.join()
        if self._failed and error is None:
            raise self._failed[0]

    def _run(self) -> None:
        try:
            self.work()
        except Exception as error:
            self._failed.append(error)
