"""Jobs with DAGs beside a cluster that uses the entire cache, with hints and without: dissertation 6.7, Kariz."""

from __future__ import annotations

import json
import random
import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from net.cluster import BACK, BUCKET, Client, Cluster, Shape
from net.fabric import Rates
from net.objects import Read, ranges
from real.processes import run

from . import lineage
from .row import Bed, Line, Unsound, sound
from .stages import Readers, Stages, Step
from .tpch import COMPUTE_PER_READ, QUERIES, Job, dag, loads, objects, reads, tables_of

# A hundredth of the published rates: the lake gives 8 Gbit/s.
_CLIENT_MBIT, _LAKE_MBIT = 800, 80
_GOODPUT = 0.95
# A ten-thousandth of the published bytes: a cache of 512 GB, and a neighbour with 1 TB of unique data.
_ROOM, _NEIGHBOUR = 51_200_000, 100_000_000
# "Two clusters each with 12 compute nodes".
_READERS = 12
_BLOCK_BYTES, _REQUEST_BYTES = 64 << 10, 64 << 10
# The neighbour reads this before the jobs begin, over a link that does not slow it down.
_WARM_UP, _WARM_UP_MBIT = 2 * _NEIGHBOUR, 2_000
# Three databases with the 8 tables of TPC-H, for the 43 data sets of TR-CP2021, and a quarter of its 2,448 GB. Small
# databases are read more often; each has about the same part of all bytes.
_DATABASES = {"large": 17_600_000, "medium": 8_800_000, "small": 4_400_000}
_JOBS_ON = {"large": 2, "medium": 3, "small": 6}
# Results of stages never leave the tier, as Kariz marks them; objects with a short lifetime stay for longer than a run.
_TABLES_OF_NODE = """
[write]
age = "10m"
permission = "10m"

[[tier]]
name = "near"
folder = "FOLDER"
capacity = "1GiB"

[[write.rule]]
prefix = "s3://BUCKET/back/"
mode = "back"
lifetime = "short"
"""
# Pins may take half of a node's room, where a block of 64 KiB takes 72 KiB; this is what an operator can pin at once.
_PINS_PERCENT = 40
# The variable with the part of the room that hints may take.
_ROOM_OF_HINTS = "SHOAL_HINTS_ROOM"
# A run counts if this part of the lake link was used: the link shall bound the readers. It is tried so often.
_LINK_USE_LEAST, _TRIES = 0.9, 4
# Values of `X-Cache` of answers whose bytes were all there.
_LOCAL = {"HIT", "REVALIDATED"}


@dataclass(frozen=True)
class Mode:
    """What nodes know of the jobs."""

    name: str
    """How many jobs ahead a job is announced: with 1, when the one before it begins. None without hints."""
    ahead: int | None = None
    """Whether jobs have deadlines: when they would end on an idle link."""
    has_deadlines: bool = False
    """The part of the room that hints may take, if it is not the default."""
    room_percent: int | None = None
    has_pins: bool = False

    @property
    def has_hints(self) -> bool:
        """Returns whether jobs are announced at all."""
        return self.ahead is not None


_NONE = Mode("no hints")
_HINTS = Mode("hints", ahead=0)
_AHEAD = Mode("hints one job ahead", ahead=1)
_ROOMY = Mode("hints one job ahead, with the room of pins", ahead=1, room_percent=_PINS_PERCENT)
_DUE = Mode("hints one job ahead, with deadlines", ahead=1, has_deadlines=True)
_PINS = Mode("pins by hand", has_pins=True)
_MODES = (_NONE, _HINTS, _AHEAD, _ROOMY, _PINS)
_METERED_MODES = (_NONE, _HINTS, _AHEAD, _DUE, _PINS)


@dataclass
class Course:
    """What became of the jobs and of the neighbour in one run."""

    run_s: float = 0
    read_s: float = 0
    """Bytes that the jobs read of their tables and results, for each value of `X-Cache`."""
    bytes: Counter[str] = field(default_factory=Counter)
    """Bytes that came over the lake link while the jobs ran, and while the pins were set before."""
    lake_bytes: int = 0
    pins_bytes: int = 0
    neighbour_mbit: float = 0
    neighbour_hits: float = 0
    """Bytes of hints, and hints by their states."""
    brought: int = 0
    used: int = 0
    wasted: int = 0
    states: Counter[str] = field(default_factory=Counter)

    @property
    def link_use(self) -> float:
        """Returns the part of what the lake link carries that came over it, headers included."""
        return self.lake_bytes * 8 / (self.run_s * _LAKE_MBIT * 1e6)

    @property
    def missed(self) -> int:
        """Returns the bytes of jobs in answers that were not hits."""
        return sum(size for cache, size in self.bytes.items() if cache not in _LOCAL)


def hints(bed: Bed, metered: bool = False) -> list[Line]:
    """Measures the jobs without hints, with hints, and with pins that were set by hand, beside the neighbour."""
    row, modes = ("hints-metered", _METERED_MODES) if metered else ("hints", _MODES)
    shape = Shape(
        1,
        Rates(client=_CLIENT_MBIT, lake=_LAKE_MBIT),
        capacity=f"{_ROOM}B",
        block_size=f"{_BLOCK_BYTES}B",
        freshness="immutable",
        solo=(1,),
        tables=_tables(bed.folder / f"{row}-tier"),
    )
    # A solo node has its link alone; `Shape.metered_mbit` is shared.
    metering = {"SHOAL_LAKE_BANDWIDTH": f"{_LAKE_MBIT * _GOODPUT:.0f}Mbit"} if metered else {}
    sizes, scanned = tables_of(_DATABASES, _BLOCK_BYTES), _scanned()
    found: dict[Mode, list[Course]] = {mode: [] for mode in modes}
    with bed.cluster(row, shape) as cluster:
        cluster.nodes[1].environment.update(metering)
        for folder, size in {**sizes, "neighbour": _NEIGHBOUR}.items():
            for key, part in objects(folder, size):
                cluster.put(key, part)
        for turn in range(bed.rounds):
            work = _work(turn)
            work = work[: len(work) // min(bed.haste, 3)]
            at = turn % len(modes)
            for mode in (*modes[at:], *modes[:at]):
                found[mode].append(_bound_by_link(_Run(bed, cluster, sizes, mode, turn), work, scanned))
    return _lines(found)


def _bound_by_link(measured: _Run, work: Sequence[Job], scanned: Sequence[Read]) -> Course:
    """Runs until the lake link is what bounds the run, and not other work on the machine."""
    for _ in range(_TRIES):
        course = measured.run(work, scanned)
        print(f"hints, {measured}, {course.link_use:.0%} of the lake link: {asdict(course)}", flush=True)
        if course.link_use >= _LINK_USE_LEAST:
            return course
    raise Unsound(f"{measured}: the lake link had room in {_TRIES} runs")


def _tables(tier: Path) -> str:
    named = {"FOLDER": str(tier), "BUCKET": BUCKET}
    return re.sub("|".join(named), lambda word: named[word[0]], _TABLES_OF_NODE) + lineage.RULE


def _reads(folder: str, size: int) -> list[Read]:
    return reads(objects(folder, size), _REQUEST_BYTES)


def _scanned() -> list[Read]:
    return _reads("neighbour", _NEIGHBOUR)


def _work(seed: int) -> list[Job]:
    """Draws queries without repetition and their databases; the order is by chance, too."""
    chance = random.Random(f"hints {seed}")
    databases = [name for name, count in _JOBS_ON.items() for _ in range(count)]
    chance.shuffle(databases)
    queries = chance.sample(sorted(QUERIES), len(databases))
    return [dag(query, database) for query, database in zip(queries, databases, strict=True)]


class _Run:
    """One mode in one round."""

    def __init__(self, bed: Bed, cluster: Cluster, sizes: dict[str, int], mode: Mode, turn: int) -> None:
        self._bed, self._cluster, self._sizes, self._mode, self._turn = bed, cluster, sizes, mode, turn
        self._node = cluster.nodes[1]
        self._course, self._tries = Course(), 0

    def __str__(self) -> str:
        return f"round {self._turn}, {self._mode.name}"

    def run(self, work: Sequence[Job], scanned: Sequence[Read]) -> Course:
        """Fills the cache with the neighbour's data, and runs the jobs beside the neighbour."""
        self._course, self._tries = Course(), self._tries + 1
        cluster, course = self._cluster, self._course
        self._node.environment.pop(_ROOM_OF_HINTS, None)
        if self._mode.room_percent:
            self._node.environment[_ROOM_OF_HINTS] = str(self._mode.room_percent)
        cluster.restart_cold()
        self._warm_up(scanned)
        if self._mode.has_pins:
            before = cluster.fabric.lake_bytes()
            pinned = self._pin(work)
            course.pins_bytes = cluster.fabric.lake_bytes() - before
        account = cluster.lake.account
        readers = Readers(self._node.url, account.access_key, account.secret_key, BUCKET, _READERS)
        plan = cluster.plan([1], scanned, connections=_READERS, endless_seed=self._turn, timeout_s=120)
        with Stages(1, readers) as stages:
            neighbour = Client(1, plan)
            neighbour.go()
            before, began = cluster.fabric.lake_bytes(), time.monotonic()
            runs = [lineage.Run(self._node, job, self._between(number)) for number, job in enumerate(work)]
            announced = 0
            for number, job in enumerate(work):
                if self._mode.ahead is not None:
                    for run_of_job in runs[announced : number + self._mode.ahead + 1]:
                        run_of_job.start(self._due_s(work[number : announced + 1]))
                        announced += 1
                self._do(stages, job, self._between(number))
                if self._mode.has_hints:
                    runs[number].complete()
            course.run_s = time.monotonic() - began
            course.lake_bytes = cluster.fabric.lake_bytes() - before
            beside = sound(neighbour.stop())
        course.neighbour_mbit = beside.mbit_per_s
        course.neighbour_hits = sum(n for word, n in beside.cache.items() if word in _LOCAL) / beside.reads
        if self._mode.has_pins:
            self._order("unpin", pinned)
        if self._mode.has_hints:
            self._count_hints()
        return course

    def _warm_up(self, scanned: Sequence[Read]) -> None:
        cluster = self._cluster
        cluster.fabric.shape("lake-1", _WARM_UP_MBIT)
        again = random.Random("warm up").choices(scanned, k=_WARM_UP // _REQUEST_BYTES)
        sound(cluster.read_through(1, again, connections=_READERS, timeout_s=60))
        self._node.settle()
        cluster.fabric.shape("lake-1", _LAKE_MBIT)

    def _between(self, number: int) -> str:
        """Returns the folder of the results of a job's stages. It is another one in every run."""
        mode = re.sub(r"\W+", "-", self._mode.name)
        return f"{BACK}{mode}-{self._turn}-{self._tries}/{number}"

    def _due_s(self, jobs: Sequence[Job]) -> float | None:
        """Returns the time that these jobs take in turn on an idle link, for a mode with deadlines."""
        all_loads = [load for job in jobs for load in loads(job, self._sizes)]
        reads_s = sum(_idle_s(load.read_bytes) for load in all_loads)
        return reads_s * (1 + COMPUTE_PER_READ) if self._mode.has_deadlines else None

    def _do(self, stages: Stages, job: Job, between: str) -> None:
        """Runs a job stage by stage."""
        results: dict[str, int] = {}
        for load in loads(job, self._sizes):
            requests = [read for folder in load.tables for read in _reads(folder, self._sizes[folder])]
            for name, size in load.before.items():
                requests += ranges(f"{between}/{name}", size, _REQUEST_BYTES)
            results.update(load.results)
            named = {f"{between}/{name}": size for name, size in load.results.items()}
            done = stages.run(Step(requests, COMPUTE_PER_READ * _idle_s(load.read_bytes), named))
            self._course.read_s += done.read_s
            self._course.bytes.update(done.bytes)
        stages.run(Step(removes=[f"{between}/{name}" for name in results]))

    def _pin(self, work: Sequence[Job]) -> list[str]:
        """Pins the tables that the jobs read most often, as many as may be pinned, and waits until they are there."""
        asked = Counter(table for job in work for table in job.tables)
        pinned: list[str] = []
        room = _ROOM * _PINS_PERCENT // 100
        for table, _ in asked.most_common():
            if self._sizes[table] <= room:
                room -= self._sizes[table]
                pinned += [key for key, _ in objects(table, self._sizes[table])]
        self._order("pin", pinned, "--for", "1h")
        return pinned

    def _order(self, what: str, keys: Sequence[str], *more: str) -> None:
        uris = "".join(f"s3://{BUCKET}/{key}\n" for key in keys)
        command = [self._bed.binary, what, "--manifest", "-", *more, "--wait", "--node", self._node.admin]
        subprocess.run([*command, *self._node.shown], input=uris, text=True, check=True, capture_output=True)

    def _count_hints(self) -> None:
        listed = run([self._bed.binary, "hints", "--json", "--node", self._node.admin, *self._node.shown])
        course = self._course
        for hint in json.loads(listed)["hints"]:
            course.brought += hint["brought_bytes"]
            course.used += hint["used_bytes"]
            course.wasted += hint["wasted_bytes"]
            course.states[hint["task"]["state"]] += 1


def _idle_s(size: int) -> float:
    return size * 8 / (_LAKE_MBIT * _GOODPUT * 1e6)


def _lines(found: dict[Mode, list[Course]]) -> list[Line]:
    def against(fact: Callable[[Course], float], mode: Mode) -> list[float]:
        return [fact(mine) / fact(none) - 1 for mine, none in zip(found[mode], found[_NONE], strict=True)]

    lines = []
    for mode in (mode for mode in found if mode != _NONE):
        with_mode = f"{mode.name} against none"
        published, to_reach, most = ("−20%", "≤ −20%", -0.2) if mode.has_hints else ("–", "–", None)
        run_s = against(lambda course: course.run_s, mode)
        lines.append(Line(f"DAG jobs: run time, {with_mode}", published, to_reach, run_s, "{:+.1%}", most=most))
        for what, fact in (
            ("DAG jobs: time of reads", lambda course: course.read_s),
            ("DAG jobs: bytes that their reads missed", lambda course: course.missed),
            ("bytes of the lake link while the jobs run", lambda course: course.lake_bytes),
            ("neighbour: throughput", lambda course: course.neighbour_mbit),
        ):
            lines.append(Line(f"{what}, {with_mode}", "–", "–", against(fact, mode), "{:+.1%}"))
    for mode, courses in found.items():
        for what, values, form in (
            ("DAG jobs: run time, s", [course.run_s for course in courses], "{:.1f}"),
            (
                "DAG jobs: bytes read that were missed",
                [course.missed / course.bytes.total() for course in courses],
                "{:.0%}",
            ),
            ("use of the lake link", [course.link_use for course in courses], "{:.0%}"),
            ("neighbour: Mbit/s", [course.neighbour_mbit for course in courses], "{:.0f}"),
            ("neighbour: hits", [course.neighbour_hits for course in courses], "{:.0%}"),
            (
                "bytes of the lake link while the jobs run, MB",
                [course.lake_bytes / 1e6 for course in courses],
                "{:.0f}",
            ),
        ):
            lines.append(Line(f"{what}, {mode.name}", "–", "–", values, form))
    for mode, courses in ((mode, courses) for mode, courses in found.items() if mode.has_hints):
        for what, values in (
            ("brought", [course.brought / 1e6 for course in courses]),
            ("used", [course.used / 1e6 for course in courses]),
            ("wasted", [course.wasted / 1e6 for course in courses]),
        ):
            lines.append(Line(f"bytes of {mode.name}, {what}, MB", "–", "–", values, "{:.1f}"))
    pinned = [course.pins_bytes / 1e6 for course in found[_PINS]]
    return [*lines, Line("bytes of the lake link to pin by hand, before the jobs, MB", "–", "–", pinned, "{:.0f}")]
