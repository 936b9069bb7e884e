"""Jobs that recur, with a plan and without, live: Netco (section 6) over one link that could serve them all."""

from __future__ import annotations

import csv
import json
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from net.cluster import BUCKET, Client, Cluster, Shape
from net.fabric import Rates
from net.objects import Read, ranges
from net.reader import Outcome
from real.processes import run

from .netco import Job, Work, draw
from .row import MIB, RACK_MBIT, Bed, Line, sound

_RACKS = 3
# The link of all nodes together: a 125th of the 60 Gbit/s of 6.1.
_LINK_MBIT = 480
# What the link carries beside heads and acknowledgements.
_GOODPUT = 0.95
_LINK = f"{int(_LINK_MBIT * _GOODPUT)}Mbit"
# Two weeks of a daily history, and the window for an hour.
_DAYS, _WINDOW_S, _WINDOW_IN_HASTE_S = 14, 90, 30
# A plan begins this part of the window before it.
_LEAD = 0.5
# In this time a plan is made and handed over.
_HEAD_START_S = 15
_SLOT_S = 2
_REQUEST_BYTES, _CONNECTIONS = MIB, 8
_BLOCK_BYTES = MIB // 4
# The nodes have room for 60% of what the recurring jobs read. Pins may take half of it, so a plan has 30%.
_ROOM, _PINNED = 0.6, 0.5
# The least that a node takes.
_NO_ROOM_BYTES = 16 * _BLOCK_BYTES
_PEAK_OVER_S = 5
# A coordinator waits for the counts of its nodes.
_VERDICTS_S = 20


class PlannerUnavailable(RuntimeError):
    """There is no planner beside the binary."""


@dataclass(frozen=True)
class Mode:
    """How the jobs read."""

    name: str
    """Deadlines missed, peak and bytes against remote reads, as published; empty if not published."""
    published: tuple[str, str, str]
    has_nodes: bool = True
    has_room: bool = True
    """Whether a plan promises jobs their rates, and whether it fetches and keeps files for them, too."""
    promises: bool = False
    fetches: bool = False
    """Whether the reads of recurring jobs name their job, so that they have a ceiling."""
    names_jobs: bool = False


_REMOTE = Mode("remote", ("up to 25%", "", ""), has_nodes=False)
_METERED = Mode("remote, metered", ("", "", ""), has_room=False, promises=True, names_jobs=True)
_CACHES = Mode("caches", ("5 to 10%", "−2 to −6%, one −25%", "−23 to −45%"))
_PRIORITY = Mode("caches with priority", ("", "", ""), promises=True)
_PLAN = Mode("plan", ("about 0", "−44 to −77%", "−63 to −81%"), promises=True, fetches=True, names_jobs=True)
_MODES = (_REMOTE, _METERED, _CACHES, _PRIORITY, _PLAN)


@dataclass
class Course:
    """What became of the jobs."""

    """When each job had read all, in seconds of the window, and how long it read."""
    ended_s: dict[str, float] = field(default_factory=dict)
    lasted_s: dict[str, float] = field(default_factory=dict)
    lake_bytes: int = 0
    """Bytes a second."""
    peak: float = 0
    """The number of jobs of each status, as the plan reports it in the end."""
    statuses: dict[str, int] = field(default_factory=dict)

    def missed(self, work: Work) -> float:
        """Returns the part of the recurring jobs that missed their deadlines."""
        jobs = work.recurring
        return sum(self.ended_s[job.name] > job.deadline_s for job in jobs) / len(jobs)

    def ad_hoc_s(self, work: Work) -> float:
        """Returns the median run time of ad hoc jobs."""
        return statistics.median(self.lasted_s[job.name] for job in work.ad_hoc)


_Round = tuple[Work, dict[Mode, Course]]


def plans(bed: Bed, ad_hoc: bool = False) -> list[Line]:
    """Measures recurring jobs in each mode, beside ad hoc jobs or alone."""
    if not (bed.binary.parent / "shoal-planner").exists():
        raise PlannerUnavailable("shoal-planner is not beside shoal: cargo build --release -p shoal-planner")
    window_s = _WINDOW_S if bed.haste == 1 else _WINDOW_IN_HASTE_S
    rounds: list[_Round] = []
    for turn in range(bed.rounds):
        work = draw(turn, _RACKS, window_s, _LINK_MBIT * _GOODPUT * 1e6 / 8, ad_hoc)
        courses = {}
        for number, mode in enumerate(_MODES):
            courses[mode] = course = _Run(bed, work, f"plan-{turn}-{number}", mode, window_s).course()
            figures = f"{course.missed(work):.0%} missed, {course.lake_bytes / 1e6:.0f} MB, {course.statuses}"
            print(f"round {turn}, {mode.name}: {figures}", file=sys.stderr, flush=True)
        rounds.append((work, courses))
    return _lines(rounds, ad_hoc)


class _Run:
    """One mode in one round."""

    def __init__(self, bed: Bed, work: Work, name: str, mode: Mode, window_s: float) -> None:
        self._bed, self._work, self._name, self._mode, self._window_s = bed, work, name, mode, window_s
        self._lead_s = window_s * _LEAD if mode.fetches else 0

    def course(self) -> Course:
        """Runs the window in a cluster of its own."""
        with self._bed.cluster(self._name, self._shape()) as cluster:
            cluster.fabric.shape("lake", _LINK_MBIT)
            # A partition is whole when its day is over.
            yesterday = datetime.now(UTC).date() - timedelta(days=1)
            keys = {file: _key(file, yesterday.isoformat()) for file in self._work.sizes}
            for file, size in self._work.sizes.items():
                cluster.put(keys[file], size)
            clients = {job.name: self._client(cluster, job, keys) for job in self._work.jobs}
            begin = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=_HEAD_START_S)
            if self._mode.promises:
                self._start_plan(cluster, begin)
            first = time.monotonic() + (begin - datetime.now(UTC)).total_seconds()
            if first < time.monotonic():
                raise RuntimeError("the plan was handed over too late")
            with _measured(cluster, first) as course:
                self._do(clients, first + self._lead_s, course)
            if self._mode.promises:
                course.statuses = self._statuses(cluster, first + self._lead_s)
            return course

    def _shape(self) -> Shape:
        room = int(self._work.shared_bytes * _ROOM / _RACKS) if self._mode.has_room else _NO_ROOM_BYTES
        return Shape(
            _RACKS,
            Rates(client=RACK_MBIT, rack=RACK_MBIT),
            capacity=f"{room}B",
            block_size=f"{_BLOCK_BYTES}B",
            freshness="immutable",
            metered_mbit=int(_LINK_MBIT * _GOODPUT),
        )

    def _client(self, cluster: Cluster, job: Job, keys: dict[str, str]) -> Client:
        reads: list[Read] = []
        for file in job.files:
            reads += ranges(keys[file], self._work.sizes[file], _REQUEST_BYTES)
        # Mappers run in no order.
        random.Random(job.name).shuffle(reads)
        plan = cluster.plan([job.rack], reads, connections=_CONNECTIONS, timeout_s=120)
        if not self._mode.has_nodes:
            plan = replace(plan, endpoints=[cluster.lake.url])
        is_named = self._mode.names_jobs or job.is_ad_hoc
        name = _run_name(job, datetime.now(UTC)) if is_named else ""
        return Client(job.rack, replace(plan, job=name, bytes_per_second=job.bytes_per_second))

    def _do(self, clients: dict[str, Client], started: float, course: Course) -> None:
        for job in self._work.jobs:
            time.sleep(max(0.0, started + job.submit_s - time.monotonic()))
            clients[job.name].go()
        for job in self._work.jobs:
            outcome: Outcome = sound(clients[job.name].outcome())
            course.ended_s[job.name] = outcome.ended_s - started
            course.lasted_s[job.name] = outcome.ended_s - outcome.started_s

    def _start_plan(self, cluster: Cluster, begin: datetime) -> None:
        """Learns the jobs from a history of two weeks, plans the window, and hands the plan to a node."""
        folder = self._bed.folder / self._name
        history = folder / "history.csv"
        _write_history(history, self._work, begin + timedelta(seconds=self._lead_s))
        window = ["--from", begin.isoformat(), "--window", f"{self._lead_s + self._window_s:.0f}s"]
        # Without room for a block of the plan, every job reads all of its inputs from the lake.
        room = int(self._work.shared_bytes * _ROOM * _PINNED) if self._mode.fetches else 1
        terms = ["--slot", f"{_SLOT_S}s", "--bandwidth", _LINK, "--cache", f"{room}B"]
        terms += ["--block-size", f"{_BLOCK_BYTES}B"]
        document = run([self._bed.binary, "plan", history, *window, *terms])
        plan = folder / "plan.json"
        plan.write_text(document)
        node = cluster.nodes[1]
        run([self._bed.binary, "plan", "start", plan, "--node", node.admin, *node.shown])

    def _statuses(self, cluster: Cluster, started: float) -> dict[str, int]:
        """Returns the last report of the plan, once all jobs are judged."""
        last = started + max(job.deadline_s for job in self._work.recurring) + _VERDICTS_S
        while True:
            progress = json.loads(cluster.nodes[1].ask("/plan"))
            counts: dict[str, int] = progress["plan"]["jobs"]
            if time.monotonic() > last or not sum(counts[open_] for open_ in ("waiting", "running", "at_risk")):
                (self._bed.folder / self._name / "progress.json").write_text(json.dumps(progress, indent=1))
                return counts
            time.sleep(1)


def _key(file: str, day: str) -> str:
    return f"{file}/dt={day}/part-0"


def _run_name(job: Job, day: datetime) -> str:
    return f"{job.name}_{day.date().isoformat()}"


def _write_history(path: Path, work: Work, started: datetime) -> None:
    """Writes the runs of the last days, each over a link that was no bottleneck."""
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["name", "submitted", "ended", "deadline", "input", "input_bytes"])
        for days in range(_DAYS, 0, -1):
            day = started - timedelta(days=days)
            partition = (day - timedelta(days=1)).date().isoformat()
            for job in work.recurring:
                lasted_s = work.bytes(job) / job.bytes_per_second
                moments = [day + timedelta(seconds=at_s) for at_s in (job.submit_s, job.submit_s + lasted_s)]
                moments.append(day + timedelta(seconds=job.deadline_s))
                for read in job.files:
                    uri = f"s3://{BUCKET}/{_key(read, partition)}"
                    run_ = [_run_name(job, day), *(moment.isoformat() for moment in moments)]
                    table.writerow([*run_, uri, work.sizes[read]])


@contextmanager
def _measured(cluster: Cluster, first: float) -> Iterator[Course]:
    """Counts the bytes of the lake link from a moment until the last job is done."""
    course, over = Course(), threading.Event()
    time.sleep(max(0.0, first - time.monotonic()))
    samples = [(time.monotonic(), cluster.fabric.lake_bytes())]

    def sample() -> None:
        while not over.wait(1.0):
            samples.append((time.monotonic(), cluster.fabric.lake_bytes()))

    watch = threading.Thread(target=sample)
    watch.start()
    try:
        yield course
    finally:
        over.set()
        watch.join()
    course.lake_bytes = cluster.fabric.lake_bytes() - samples[0][1]
    pairs = zip(samples, samples[_PEAK_OVER_S:], strict=False)
    course.peak = max((after - before) / (now - then) for (then, before), (now, after) in pairs)


def _lines(rounds: Sequence[_Round], ad_hoc: bool) -> list[Line]:
    lines = _figures(rounds, ad_hoc)
    jobs = len(rounds[0][0].recurring)
    for status in ("met", "missed", "unread", "unplanned"):
        counts = [float(courses[_PLAN].statuses[status]) for _, courses in rounds]
        lines.append(Line(f"jobs that the plan reports as {status}, of {jobs}", "–", "–", counts, "{:.0f}"))
    for mode in _MODES[1:]:
        published = mode.published
        is_goal = mode is _PLAN and not ad_hoc
        lines.append(
            Line(
                f"peak over {_PEAK_OVER_S} s, {mode.name} against remote",
                published[1] or "–",
                "≤ −44%" if is_goal else "–",
                _against(rounds, lambda _, course: course.peak, mode, _REMOTE),
                "{:+.0%}",
                most=-0.44 if is_goal else None,
            )
        )
        values = _against(rounds, lambda _, course: course.lake_bytes, mode, _REMOTE)
        lines.append(Line(f"bytes, {mode.name} against remote", published[2] or "–", "–", values, "{:+.0%}"))
    for mode in (_METERED, _CACHES, _PRIORITY):
        values = _against(rounds, lambda _, course: course.peak, _PLAN, mode)
        lines.append(Line(f"peak over {_PEAK_OVER_S} s, plan against {mode.name}", "–", "–", values, "{:+.0%}"))
    for mode in (_REMOTE, _METERED, _CACHES, _PRIORITY) if ad_hoc else ():
        is_goal = mode is _PRIORITY
        lines.append(
            Line(
                f"ad hoc jobs, median run time, plan against {mode.name}",
                "−20 to −68% (simulated)" if is_goal else "–",
                "≤ 0%" if is_goal else "–",
                _against(rounds, lambda work, course: course.ad_hoc_s(work), _PLAN, mode),
                "{:+.0%}",
                most=0 if is_goal else None,
            )
        )
    return lines


def _figures(rounds: Sequence[_Round], ad_hoc: bool) -> list[Line]:
    """Returns what was measured in each mode by itself."""
    lines = []
    for mode in _MODES:
        is_goal = mode is _PLAN
        missed = [courses[mode].missed(work) for work, courses in rounds]
        published, goal = mode.published[0] or "–", "0%" if is_goal else "–"
        most = 0 if is_goal else None
        lines.append(Line(f"deadlines missed, {mode.name}", published, goal, missed, "{:.0%}", most=most))
    facts: list[tuple[str, Callable[[Work, Course], float]]] = [
        (f"peak over {_PEAK_OVER_S} s, Mbit/s", lambda _, course: course.peak * 8e-6),
        ("bytes over the link, MB", lambda _, course: course.lake_bytes / 1e6),
    ]
    if ad_hoc:
        facts.append(("ad hoc jobs, median run time in s", lambda work, course: course.ad_hoc_s(work)))
    for words, fact in facts:
        for mode in _MODES:
            values = [fact(work, courses[mode]) for work, courses in rounds]
            form = "{:.1f}" if "time" in words else "{:.0f}"
            lines.append(Line(f"{words}, {mode.name}", "–", "–", values, form))
    return lines


def _against(rounds: Sequence[_Round], fact: Callable[[Work, Course], float], mode: Mode, other: Mode) -> list[float]:
    return [fact(work, courses[mode]) / fact(work, courses[other]) - 1 for work, courses in rounds]
