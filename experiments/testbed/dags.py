"""Jobs with DAGs at four nodes: straight from the lake, with D3N, with D4N, with D4N and hints. Dissertation 6.6."""

from __future__ import annotations

import math
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from net.cluster import BACK, BUCKET, Cluster, Shape
from net.fabric import Rates
from net.objects import whole

from . import lineage
from .modes import RACKS, sent
from .row import Bed, Line, sound
from .stages import Readers, Stages, Step
from .tpch import COMPUTE_PER_READ, QUERIES, Job, dag, loads, objects, reads, tables_of

# A 4,096th of the published bytes. Requests, blocks and the objects of results cannot shrink as far, or processors
# would bound the reads: 512 MB, as in 6.5.1, become 256 KiB.
_BYTES, _REQUEST_BYTES = 4_096, 256 << 10
_GB = 1_000_000_000 // _BYTES
# A 140th of the published rates: the lake of 63 disks gives 7 Gbit/s to all nodes together. Twelve clients of 10
# Gbit/s beside each cache, which has 40 to them and 40 to the lake, in racks with 4 x 40.
_RATE = 140
_LAKE_MBIT = 7_000 // _RATE
_RATES = Rates(client=12 * 10_000 // _RATE, node=40_000 // _RATE, rack=4 * 40_000 // _RATE, lake=40_000 // _RATE)
_GOODPUT = 0.95
# "48 compute nodes", 12 for each of four caches.
_READERS = 12
# "331 jobs that access over 43 unique input data sets", of 1 to 256 GB, and read 2,448 GB of them. Sizes follow
# their rank between the least and the greatest.
_JOBS, _SETS, _LEAST_GB, _MOST_GB, _READ_GB = 331, 43, 1, 256, 2_448
# An hour at a tenth of the rate of submission.
_SUBMISSION_S = 10 * 3_600 * _RATE / _BYTES
# A draw counts if its jobs read the published bytes but for this part.
_CLOSE = 0.01
# A database is chosen with its bytes to the power of minus this: then the mean of all draws is the published sum.
_SMALL_FIRST = 0.19
# 512 GB a node, and the tenth that it keeps free. With D4N a fifth of it is the write cache, as in 6.5.2.
_ROOM = int(512 * _GB * 1.1)
_READ_PART = 0.8
# "1.5 TB of intermediate data and 540 GB of output data" (6.1.2).
_OUTPUT_PER_INPUT = 0.54 / 8
# A minute, as in 6.7.
_AGE = f"{round(60 * _RATE / _BYTES)}s"
_BETWEEN = f"{BACK}between/"
_KEPT = f"""
[[write.rule]]
prefix = "s3://{BUCKET}/{_BETWEEN}"
mode = "back"
lifetime = "short"
"""
_SOURCES = ("local", "peer", "tier", "lake")
_CHECKED = 50


@dataclass(frozen=True, eq=False)
class _Mode:
    """The settings of the nodes, and how the jobs use them."""

    name: str
    settings: dict[str, object] = field(default_factory=dict)
    has_nodes: bool = True
    writes_back: bool = False
    has_hints: bool = False


_D4N_SETTINGS = {
    "directory": True,
    "capacity": f"{int(_ROOM * _READ_PART)}B",
    "written_back": _AGE,
    "permission": "1m",
    "tables": _KEPT + lineage.RULE,
}
_LAKE = _Mode("lake", has_nodes=False)
_D3N = _Mode("D3N", {"split": (50, 50), "policy": "lru"})
_D4N = _Mode("D4N", _D4N_SETTINGS, writes_back=True)
_HINTED = _Mode("D4N with hints", _D4N_SETTINGS, writes_back=True, has_hints=True)
_MODES = (_LAKE, _D3N, _D4N, _HINTED)


@dataclass(frozen=True)
class _Work:
    """The jobs in the order of their moments, in seconds, and the bytes of all tables."""

    jobs: Sequence[tuple[float, Job]]
    sizes: dict[str, int]

    @property
    def read_gb(self) -> float:
        """Returns the published bytes that the jobs read of their tables."""
        return sum(self.sizes[table] for _, job in self.jobs for table in job.tables) / _GB

    @property
    def first_gb(self) -> float:
        """Returns the published bytes of the tables that any job reads."""
        return sum(self.sizes[table] for table in {table for _, job in self.jobs for table in job.tables}) / _GB


@dataclass
class _Course:
    """What became of the jobs in one run: sums over all jobs, and what they cost the lake."""

    run_s: float = 0
    read_s: float = 0
    write_s: float = 0
    """From the first submission to the last end, without the time in which no job ran."""
    busy_s: float = 0
    received: int = 0
    sent: int = 0
    """Bytes that nodes have sent to their clients, by source."""
    sources: Counter[str] = field(default_factory=Counter)

    @property
    def lake_bytes(self) -> int:
        """Returns the bytes over the lake links both ways, with heads, until all outputs are at the lake."""
        return self.received + self.sent


def dags(bed: Bed) -> list[Line]:
    """Measures all jobs in each mode, on empty stores."""
    found: dict[_Mode, list[_Course]] = {mode: [] for mode in _MODES}
    for turn in range(bed.rounds):
        work = _draw(turn)
        work = replace(work, jobs=work.jobs[: len(work.jobs) // bed.haste])
        print(f"dags, round {turn}: {work.read_gb:.0f} GB are read, {work.first_gb:.0f} of them first", flush=True)
        at = turn % len(_MODES)
        for mode in (*_MODES[at:], *_MODES[:at]):
            shape = Shape(
                len(RACKS),
                _RATES,
                block_size=f"{_REQUEST_BYTES}B",
                freshness="immutable",
                **{"capacity": f"{_ROOM}B", **mode.settings},  # type: ignore[arg-type]
            )
            with bed.cluster(f"dags-{turn}-{mode.name.replace(' ', '-')}", shape) as cluster:
                cluster.fabric.shape("lake", _LAKE_MBIT)
                course = _Run(cluster, mode, work).course()
            print(f"dags, round {turn}, {mode.name}: {course}", flush=True)
            found[mode].append(course)
    return _lines(found)


def _draw(seed: int) -> _Work:
    """Draws jobs until they read the published bytes. Each data set, which is a database, is read at least once."""
    power = math.log(_MOST_GB / _LEAST_GB) / math.log(_SETS)
    databases = {f"set-{rank}": int(_MOST_GB * _GB * rank**-power) for rank in range(1, _SETS + 1)}
    sizes = tables_of(databases, 1)
    weights = [size**-_SMALL_FIRST for size in databases.values()]
    chance = random.Random(f"dags {seed}")
    while True:
        named = [*databases, *chance.choices(list(databases), weights, k=_JOBS - _SETS)]
        chance.shuffle(named)
        moments = sorted(chance.uniform(0, _SUBMISSION_S) for _ in named)
        jobs = [dag(chance.choice(list(QUERIES)), database) for database in named]
        work = _Work(list(zip(moments, jobs, strict=True)), sizes)
        if abs(work.read_gb / _READ_GB - 1) <= _CLOSE:
            return work


class _Run:
    """All jobs in one mode."""

    def __init__(self, cluster: Cluster, mode: _Mode, work: _Work) -> None:
        self._cluster, self._mode, self._work = cluster, mode, work
        self._between, self._output = (_BETWEEN, f"{BACK}output/") if mode.writes_back else ("between/", "output/")
        self._course, self._outputs = _Course(), list[tuple[str, int]]()
        self._running, self._changed = 0, threading.Condition()
        self._stages: dict[int, Stages] = {}

    def course(self) -> _Course:
        """Writes the tables to the lake, and runs all jobs."""
        cluster, course = self._cluster, self._course
        for table, size in self._work.sizes.items():
            for key, part in objects(table, size):
                cluster.put(key, part)
        account = cluster.lake.account
        with ExitStack() as stack:
            for rack in RACKS:
                url = cluster.nodes[rack].url if self._mode.has_nodes else cluster.lake.url
                readers = Readers(url, account.access_key, account.secret_key, BUCKET, _READERS)
                self._stages[rack] = stack.enter_context(Stages(rack, readers))
            received, sent_before = cluster.fabric.lake_bytes(), cluster.fabric.lake_bytes_sent()
            self._submit_all()
        if self._mode.writes_back:
            cluster.flush()
        course.received = cluster.fabric.lake_bytes() - received
        course.sent = cluster.fabric.lake_bytes_sent() - sent_before
        if self._mode.has_nodes:
            course.sources.update({source: sent(cluster, source) for source in _SOURCES})
        checked = random.Random(0).sample(self._outputs, min(_CHECKED, len(self._outputs)))
        sound(cluster.read_past(1, [whole(key, size) for key, size in checked]))
        return course

    def _submit_all(self) -> None:
        """Starts each job at its moment, or as soon as no other runs: an idle cluster is not waited for."""
        began, skipped, runs = time.monotonic(), 0.0, list[Future[None]]()
        with ThreadPoolExecutor(len(self._work.jobs)) as pool:
            for number, (moment, job) in enumerate(self._work.jobs):
                with self._changed:
                    due = began + moment - skipped
                    while self._running and time.monotonic() < due:
                        self._changed.wait(due - time.monotonic())
                    skipped += max(0.0, due - time.monotonic())
                    self._running += 1
                runs.append(pool.submit(self._do, number, job))
                runs[-1].add_done_callback(lambda _: self._note_end())
            for run in runs:
                run.result()
        self._course.busy_s = time.monotonic() - began

    def _note_end(self) -> None:
        with self._changed:
            self._running -= 1
            self._changed.notify_all()

    def _do(self, number: int, job: Job) -> None:
        """Runs a job stage by stage, with its mappers and reducers anywhere. Its results are removed in the end."""
        chance = random.Random(f"{number} {job.name}")
        began = time.monotonic()
        node = self._cluster.nodes[1 + number % len(RACKS)]
        between = f"{self._between}{number}"
        run = lineage.Run(node, job, between)
        if self._mode.has_hints:
            run.start()
        sizes, results = self._work.sizes, dict[str, list[tuple[str, int]]]()
        spent = {"read": 0.0, "write": 0.0}
        for load in loads(job, sizes):
            found = [part for table in load.tables for part in objects(table, sizes[table])]
            found += [part for name in load.before for part in results[name]]
            spent["read"] += self._spread(chance, reads(found, _REQUEST_BYTES), lambda mine: Step(reads=mine))
            time.sleep(COMPUTE_PER_READ * load.read_bytes * 8 / (_LAKE_MBIT * _GOODPUT * 1e6))
            mine = {name: objects(f"{between}/{name}", size, _REQUEST_BYTES) for name, size in load.results.items()}
            results.update(mine)
            written = [part for parts in mine.values() for part in parts]
            if not written:
                size = max(1, int(sum(sizes[table] for table in job.tables) * _OUTPUT_PER_INPUT))
                written = objects(f"{self._output}{number}", size, _REQUEST_BYTES)
                self._outputs += written
            spent["write"] += self._spread(chance, written, lambda mine: Step(writes=dict(mine)))
        lasted = time.monotonic() - began
        removed = [key for parts in results.values() for key, _ in parts]
        self._spread(chance, removed, lambda mine: Step(removes=mine))
        if self._mode.has_hints:
            run.complete()
        with self._changed:
            self._course.run_s += lasted
            self._course.read_s += spent["read"]
            self._course.write_s += spent["write"]

    def _spread(self, chance: random.Random, requests: Sequence[Any], step: Callable[[list[Any]], Step]) -> float:
        """Gives the requests to the racks in turn, from any of them on; returns the seconds until the last answer."""
        began = time.monotonic()
        racks = chance.sample(RACKS, len(RACKS))
        given = {rack: requests[number :: len(racks)] for number, rack in enumerate(racks)}
        for done in [self._stages[rack].begin(step(mine)) for rack, mine in given.items() if mine]:
            done.result()
        return time.monotonic() - began


def _lines(found: dict[_Mode, list[_Course]]) -> list[Line]:
    def against(fact: Callable[[_Course], float], mode: _Mode, other: _Mode) -> list[float]:
        return [fact(mine) / fact(its) - 1 for mine, its in zip(found[mode], found[other], strict=True)]

    lines = []
    for mode, other, published, most in (
        (_D3N, _LAKE, "−22% (0.69 / 0.88)", 0.0),
        (_D4N, _LAKE, "−31%", -0.31),
        (_D4N, _D3N, "−12%", -0.12),
        (_HINTED, _LAKE, "–", None),
        (_HINTED, _D3N, "–", None),
        (_HINTED, _D4N, "–", None),
    ):
        which = f"{mode.name} against {other.name}"
        goal = "–" if most is None else "< 0" if not most else f"≤ {published}"
        values = against(lambda course: course.run_s, mode, other)
        lines.append(Line(f"run time of all jobs, {which}", published, goal, values, "{:+.1%}", most=most))
        is_goal = most is not None
        values = against(lambda course: course.lake_bytes, mode, other)
        lines.append(
            Line(
                f"bytes over the lake links, {which}",
                "less" if is_goal else "–",
                "< 0" if is_goal else "–",
                values,
                "{:+.1%}",
                most=0.0 if is_goal else None,
            )
        )
        values = against(lambda course: course.read_s + course.write_s, mode, other)
        lines.append(Line(f"time of reads and writes, {which}", "–", "–", values, "{:+.1%}"))
    facts: list[tuple[str, Callable[[_Course], float], str]] = [
        ("run time of all jobs, s", lambda course: course.run_s, "{:.0f}"),
        ("of it reads, s", lambda course: course.read_s, "{:.0f}"),
        ("of it writes, s", lambda course: course.write_s, "{:.0f}"),
        ("time in which any job ran, s", lambda course: course.busy_s, "{:.0f}"),
        ("MB from the lake", lambda course: course.received / 1e6, "{:.0f}"),
        ("MB to the lake", lambda course: course.sent / 1e6, "{:.0f}"),
    ]
    for mode, courses in found.items():
        for what, fact, form in facts:
            lines.append(Line(f"{mode.name}: {what}", "–", "–", [fact(course) for course in courses], form))
        for source in _SOURCES if mode.has_nodes else ():
            parts = [course.sources[source] / course.sources.total() for course in courses]
            lines.append(Line(f"{mode.name}: bytes read from: {source}", "–", "–", parts, "{:.0%}"))
    return lines
