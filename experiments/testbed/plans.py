"""Jobs that recur, with a plan and without, live: Netco (section 6) with a two-hundredth of its rates."""

from __future__ import annotations

import csv
import random
import statistics
import subprocess
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

from .row import CLIENT_MBIT, LAKE_MBIT, MIB, RACK_MBIT, Bed, Line, sound

_RACKS = range(1, 4)
# Two weeks of a daily history, and the window that is planned.
_DAYS, _WINDOW_S = 14, 240
# Between the hand-over of the plan and the window.
_HEAD_START_S = 10
# The fixed prefetch of the paper is 15 minutes ahead of windows of an hour.
_AHEAD_S = _WINDOW_S / 4
_REQUEST_BYTES, _CONNECTIONS = MIB, 8
_BLOCK_BYTES = MIB
# What the links carry beside heads and acknowledgements.
_GOODPUT = 0.95
_PEAK_OVER_S = 5
_TABLES = [
    "orders", "clicks", "users", "items", "stock", "prices", "visits", "regions", "carts", "refunds", "ads", "search",
]  # fmt: skip
_JOBS = [
    "churn", "revenue", "funnel", "basket", "ranking", "margin", "demand", "fraud", "cohort", "pricing", "returns",
    "traffic", "budget", "tax", "ledger", "supply", "routes", "staffing", "audit", "quality", "credit", "loyalty",
    "billing", "digest",
]  # fmt: skip
_MODES = ("lake", "cache", "ahead", "plan")


class PlannerUnavailable(RuntimeError):
    """There is no planner beside the binary."""


@dataclass(frozen=True)
class Job:
    """Reads files at a moment of the window. One without a deadline is ad hoc: no history knows it."""

    name: str
    rack: int
    submit_s: float
    files: tuple[str, ...]
    deadline_s: float | None = None


@dataclass(frozen=True)
class Work:
    """The jobs in the order of their moments, and the bytes of the files."""

    jobs: Sequence[Job]
    sizes: dict[str, int]

    def bytes(self, job: Job) -> int:
        """Returns the bytes that a job reads."""
        return sum(self.sizes[file] for file in job.files)

    def lasts(self, job: Job) -> float:
        """Returns the seconds of a job over the idle lake link of its rack."""
        return self.bytes(job) * 8 / (LAKE_MBIT * 1e6)

    @property
    def recurring(self) -> list[Job]:
        """Returns the jobs that the history knows."""
        return [job for job in self.jobs if job.deadline_s is not None]


@dataclass
class Course:
    """What became of the jobs: the seconds of each, the bytes of the lake links, and their greatest rate."""

    lasted_s: dict[str, float] = field(default_factory=dict)
    lake_bytes: int = 0
    peak: float = 0

    def in_time(self, work: Work) -> float:
        """Returns the part of the recurring jobs that met their deadlines."""
        jobs = work.recurring
        return sum(self.lasted_s[job.name] <= (job.deadline_s or 0) - job.submit_s for job in jobs) / len(jobs)

    def median_s(self, jobs: Sequence[Job]) -> float:
        """Returns the median of the seconds of some jobs."""
        return statistics.median(self.lasted_s[job.name] for job in jobs)


def plans(bed: Bed) -> list[Line]:
    """Measures jobs with a plan, with caches alone, with prefetch at a fixed time, and straight from the lake."""
    if not (bed.binary.parent / "shoal-planner").exists():
        raise PlannerUnavailable("shoal-planner is not beside shoal: cargo build --release -p shoal-planner")
    rounds: list[tuple[Work, dict[str, Course]]] = []
    for turn in range(bed.rounds):
        work = _work(turn, bed.haste)
        rounds.append((work, {mode: _live(bed, work, f"plan-{turn}-{mode}", mode) for mode in _MODES}))
    return _lines(rounds)


def _work(seed: int, haste: int) -> Work:
    """Draws a window: recurring jobs share tables, ad hoc jobs read files of their own, 30% of all bytes."""
    chance = random.Random(f"plan {seed}")
    sizes = {table: chance.randint(12, 64) * MIB // haste for table in _TABLES}
    jobs = []
    for number, name in enumerate(_JOBS):
        popular = [1 / (1 + place) for place in range(len(_TABLES))]
        files = tuple(sorted(set(chance.choices(_TABLES, popular, k=chance.randint(1, 3)))))
        job = Job(name, 1 + number % len(_RACKS), chance.uniform(30, _WINDOW_S), files)
        lasts = sum(sizes[file] for file in files) * 8 / (LAKE_MBIT * 1e6)
        deadline_s = job.submit_s + max(2.0, chance.uniform(0.5, 2.0) * lasts)
        jobs.append(replace(job, deadline_s=deadline_s))
    for number in range(len(_JOBS)):
        name = f"adhoc-{number}"
        sizes[name] = chance.randint(8, 48) * MIB // haste
        jobs.append(Job(name, 1 + number % len(_RACKS), chance.uniform(0, _WINDOW_S), (name,)))
    return Work(sorted(jobs, key=lambda job: job.submit_s), sizes)


def _live(bed: Bed, work: Work, name: str, mode: str) -> Course:
    shape = Shape(
        len(_RACKS),
        Rates(client=CLIENT_MBIT, rack=RACK_MBIT, lake=LAKE_MBIT),
        block_size=f"{_BLOCK_BYTES}B",
        freshness="immutable",
        metered_mbit=int(len(_RACKS) * LAKE_MBIT * _GOODPUT),
    )
    # The window has one time of day in the history and now, and a partition is whole when its day is over.
    begin = datetime.now(UTC).replace(microsecond=0)
    with bed.cluster(name, shape) as cluster:
        day = (begin - timedelta(days=1)).date().isoformat()
        keys = {file: _key(file, day) for file in work.sizes}
        for file, size in work.sizes.items():
            cluster.put(keys[file], size)
        clients = {job.name: _client(cluster, work, job, keys, past=mode == "lake") for job in work.jobs}
        begin = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=_HEAD_START_S)
        started = time.monotonic() + (begin - datetime.now(UTC)).total_seconds()
        actions: list[tuple[float, Callable[[], None]]] = [(job.submit_s, clients[job.name].go) for job in work.jobs]
        if mode == "plan":
            _start_plan(bed, cluster, work, begin, bed.folder / name)
        if mode == "ahead":
            actions += [
                (max(0.0, job.submit_s - _AHEAD_S), _prefetch(bed, cluster, [keys[file] for file in job.files]))
                for job in work.recurring
            ]
        with _measured(cluster, started) as course:
            for at_s, act in sorted(actions, key=lambda action: action[0]):
                time.sleep(max(0.0, started + at_s - time.monotonic()))
                act()
            for job in work.jobs:
                outcome = sound(clients[job.name].outcome())
                course.lasted_s[job.name] = _lasted(outcome)
        return course


def _key(file: str, day: str) -> str:
    return f"{file}/dt={day}/part-0"


def _client(cluster: Cluster, work: Work, job: Job, keys: dict[str, str], past: bool) -> Client:
    reads: list[Read] = []
    for file in job.files:
        reads += ranges(keys[file], work.sizes[file], _REQUEST_BYTES)
    plan = cluster.plan([job.rack], reads, connections=_CONNECTIONS, timeout_s=120)
    return Client(job.rack, replace(plan, endpoints=[cluster.lake.url]) if past else plan)


def _lasted(outcome: Outcome) -> float:
    return outcome.ended_s - outcome.started_s


def _start_plan(bed: Bed, cluster: Cluster, work: Work, begin: datetime, folder: Path) -> None:
    """Learns the jobs from a history of two weeks, plans the window, and hands the plan to a node."""
    history = folder / "history.csv"
    with history.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["name", "submitted", "ended", "deadline", "input", "input_bytes"])
        for days in range(_DAYS, 0, -1):
            day = begin - timedelta(days=days)
            partition = (day - timedelta(days=1)).date().isoformat()
            for job in work.recurring:
                submitted = day + timedelta(seconds=job.submit_s)
                ended = submitted + timedelta(seconds=max(1.0, work.bytes(job) * 8 / (CLIENT_MBIT * 1e6)))
                deadline = day + timedelta(seconds=job.deadline_s or 0)
                for read in job.files:
                    uri = f"s3://{BUCKET}/{_key(read, partition)}"
                    moments = [moment.isoformat() for moment in (submitted, ended, deadline)]
                    table.writerow([job.name, *moments, uri, work.sizes[read]])
    window = ["--from", begin.isoformat(), "--window", f"{_WINDOW_S}s", "--slot", "5s"]
    link = f"{int(len(_RACKS) * LAKE_MBIT * _GOODPUT)}Mbit"
    document = run([bed.binary, "plan", history, *window, "--bandwidth", link, "--cache", "2GiB"])
    plan = folder / "plan.json"
    plan.write_text(document)
    node = cluster.nodes[1]
    run([bed.binary, "plan", "start", plan, "--node", node.admin, *node.shown])


def _prefetch(bed: Bed, cluster: Cluster, keys: Sequence[str]) -> Callable[[], None]:
    """Returns the order to bring objects into the cache."""
    node = cluster.nodes[1]
    uris = "".join(f"s3://{BUCKET}/{key}\n" for key in keys)
    command = [bed.binary, "prefetch", "--manifest", "-", "--node", node.admin, *node.shown]

    def order() -> None:
        subprocess.run(command, input=uris, text=True, check=True, capture_output=True)

    return order


@contextmanager
def _measured(cluster: Cluster, started: float) -> Iterator[Course]:
    """Counts the bytes of the lake links from the start of the window until the last job is done."""
    course, over = Course(), threading.Event()
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
    for (then, before), (now, after) in zip(samples, samples[_PEAK_OVER_S:], strict=False):
        if now >= started:
            course.peak = max(course.peak, (after - before) / (now - then))


def _lines(rounds: Sequence[tuple[Work, dict[str, Course]]]) -> list[Line]:
    def against(fact: Callable[[Work, Course], float], mode: str, other: str) -> list[float]:
        return [fact(work, courses[mode]) / fact(work, courses[other]) - 1 for work, courses in rounds]

    names = {
        "lake": "every job from the lake",
        "cache": "caches",
        "ahead": "prefetch at a fixed time",
        "plan": "a plan",
    }
    published = {"lake": "75%", "cache": "90 to 95%", "ahead": "–", "plan": "~100%"}
    lines = [
        Line(
            f"jobs in time, {names[mode]}",
            published[mode],
            "≥ 99%" if mode == "plan" else "–",
            [courses[mode].in_time(work) for work, courses in rounds],
            "{:.0%}",
            least=0.99 if mode == "plan" else None,
        )
        for mode in _MODES
    ]
    others = (
        ("lake", "−44 to −77%", "−63 to −81%"),
        ("cache", "–", "−13 to −45%"),
        ("ahead", "−13 to −43%", "−41 to −51%"),
    )
    for other, peak, total in others:
        is_goal = other == "lake"
        lines.append(
            Line(
                f"peak of the lake links over {_PEAK_OVER_S} s, a plan against {names[other]}",
                peak,
                "≤ −44%" if is_goal else "–",
                against(lambda _, course: course.peak, "plan", other),
                "{:+.0%}",
                most=-0.44 if is_goal else None,
            )
        )
        lines.append(
            Line(
                f"bytes of the lake links, a plan against {names[other]}",
                total,
                "–",
                against(lambda _, course: course.lake_bytes, "plan", other),
                "{:+.0%}",
            )
        )
    for other in ("lake", "cache"):
        lines.append(
            Line(
                f"ad hoc jobs, median run time, a plan against {names[other]}",
                "up to −68%" if other == "lake" else "–",
                "≤ −20%" if other == "lake" else "–",
                against(lambda work, course: course.median_s(_ad_hoc(work)), "plan", other),
                "{:+.0%}",
                most=-0.2 if other == "lake" else None,
            )
        )
    lines.append(
        Line(
            "recurring jobs, run time in all, a plan against caches",
            "–",
            "≤ +2%",
            against(lambda work, course: sum(course.lasted_s[job.name] for job in work.recurring), "plan", "cache"),
            "{:+.0%}",
            most=0.02,
        )
    )
    return lines


def _ad_hoc(work: Work) -> list[Job]:
    return [job for job in work.jobs if job.deadline_s is None]
