"""An hour of Netco's jobs, scaled, drawn as `shoal_lab::netco::workload` does, for a link that can serve them all.

The paper prints few numbers of its jobs; those that it does not print are choices of `netco-medium`, which names
them. The number of jobs is from 6.3: five minutes are "more than twice the average job inter-arrival duration", so an
hour has more than 24.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

_JOBS = [
    "churn", "revenue", "funnel", "basket", "ranking", "margin", "demand", "fraud", "cohort", "pricing", "returns",
    "traffic", "budget", "tax", "ledger", "supply", "routes", "staffing", "audit", "quality", "credit", "loyalty",
    "billing", "digest",
]  # fmt: skip
# 40% of the jobs are ad hoc, and so are 40% of the bytes.
_AD_HOC = round(len(_JOBS) * 0.4 / 0.6)
_AD_HOC_BYTES = 0.4 / 0.6
_FILES_A_JOB = 5.6
# Fig. 2a: a quarter of the files have more than ten readers, by a power law; the others one to ten.
_SHARED, _TAIL = 0.25, 2.2
_SIZE_SPREAD, _RATE_SPREAD = 1.0, 0.6
# "Most jobs" are submitted in the first five minutes of an hour.
_ON_THE_HOUR, _ON_THE_HOUR_PART = 0.6, 1 / 12
# A job reads for five minutes of an hour (the median), and has 1.5 to 3 times that until its deadline.
_READING_PART = 1 / 12
_SLACK = (1.5, 3.0)
_DEADLINE_PART_MIN = 1 / 60
# The link has so much more than the least that a fluid model needs for all deadlines without a cache.
_ROOM = 1.25


@dataclass(frozen=True)
class Job:
    """Reads files from a moment of the window on, at a rate of its own. An ad hoc job has neither rate nor deadline."""

    name: str
    rack: int
    submit_s: float
    files: tuple[str, ...]
    bytes_per_second: float = 0
    deadline_s: float = math.inf

    @property
    def is_ad_hoc(self) -> bool:
        """Returns whether no history knows the job."""
        return math.isinf(self.deadline_s)


@dataclass(frozen=True)
class Work:
    """The jobs in the order of their moments, and the bytes of the files."""

    jobs: Sequence[Job]
    sizes: dict[str, int]

    def bytes(self, job: Job) -> int:
        """Returns the bytes that a job reads."""
        return sum(self.sizes[file] for file in job.files)

    @property
    def recurring(self) -> list[Job]:
        """Returns the jobs that the history knows."""
        return [job for job in self.jobs if not job.is_ad_hoc]

    @property
    def ad_hoc(self) -> list[Job]:
        """Returns the others."""
        return [job for job in self.jobs if job.is_ad_hoc]

    @property
    def shared_bytes(self) -> int:
        """Returns the bytes of all files that recurring jobs read."""
        return sum(self.sizes[file] for file in {file for job in self.recurring for file in job.files})


def draw(seed: int, racks: int, window_s: float, link_bytes_per_second: float, ad_hoc: bool) -> Work:
    """Draws a window. The recurring jobs are the same with ad hoc jobs and without."""
    chance = random.Random(f"netco {seed}")
    submits = sorted(_submission(chance) * window_s for _ in _JOBS)
    inputs = _inputs(chance, _readers(chance))
    sizes = {file: chance.lognormvariate(0, _SIZE_SPREAD) for files in inputs for file in files}
    jobs = []
    for number, (name, submit_s, files) in enumerate(zip(_JOBS, submits, inputs, strict=True)):
        reading_s = window_s * _READING_PART * chance.lognormvariate(0, _RATE_SPREAD)
        lasts_s = max(reading_s * chance.uniform(*_SLACK), window_s * _DEADLINE_PART_MIN)
        rate = sum(sizes[file] for file in files) / reading_s
        jobs.append(Job(name, 1 + number % racks, submit_s, tuple(files), rate, submit_s + lasts_s))
    scale = link_bytes_per_second / (_ROOM * _least_link(jobs, sizes))
    whole = {file: max(1, round(size * scale)) for file, size in sizes.items()}
    jobs = [replace(job, bytes_per_second=job.bytes_per_second * scale) for job in jobs]
    work = Work(jobs, whole)
    return _with_ad_hoc(chance, work, racks, window_s) if ad_hoc else work


def _submission(chance: random.Random) -> float:
    return chance.random() * (_ON_THE_HOUR_PART if chance.random() < _ON_THE_HOUR else 1)


def _readers(chance: random.Random) -> list[int]:
    """Returns the number of readers of each file."""
    readers: list[int] = []
    while sum(readers) < len(_JOBS) * _FILES_A_JOB:
        if chance.random() < _SHARED:
            drawn = int(11 * (1 - chance.random()) ** (-1 / _TAIL))
        else:
            drawn = chance.choices(range(1, 11), [1 / n for n in range(1, 11)])[0]
        readers.append(min(drawn, len(_JOBS)))
    chance.shuffle(readers)
    return readers


def _inputs(chance: random.Random, readers: Sequence[int]) -> list[list[str]]:
    """Returns the files of each job. Half of the files have readers that lie near each other."""
    inputs: list[list[str]] = [[] for _ in _JOBS]
    for number, count in enumerate(readers):
        span = min(count * 8, len(_JOBS)) if chance.random() < 0.5 else len(_JOBS)
        first = chance.randrange(len(_JOBS) - span + 1)
        for job in chance.sample(range(first, first + span), count):
            inputs[job].append(f"table-{number}")
    for files in inputs:
        if not files:
            files.append(chance.choice([file for others in inputs for file in others]))
    return inputs


def _with_ad_hoc(chance: random.Random, work: Work, racks: int, window_s: float) -> Work:
    """Adds jobs that read a file of their own each, spread over the window, as fast as the link allows."""
    read = sum(work.bytes(job) for job in work.jobs)
    drawn = [chance.lognormvariate(0, _SIZE_SPREAD) for _ in range(_AD_HOC)]
    sizes = dict(work.sizes)
    jobs = list(work.jobs)
    for number, size in enumerate(drawn):
        name = f"adhoc-{number}"
        sizes[name] = max(1, round(size / sum(drawn) * read * _AD_HOC_BYTES))
        jobs.append(Job(name, 1 + number % racks, chance.random() * window_s, (name,)))
    return Work(sorted(jobs, key=lambda job: job.submit_s), sizes)


def _least_link(jobs: Sequence[Job], sizes: dict[str, float]) -> float:
    """Returns the least rate of a fair link over which all jobs read all their files in time."""
    volumes = {job.name: sum(sizes[file] for file in job.files) for job in jobs}
    low, high = 0.0, sum(job.bytes_per_second for job in jobs)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if _all_in_time(jobs, volumes, middle) else (middle, high)
    return high


def _all_in_time(all_jobs: Sequence[Job], volumes: dict[str, float], link: float) -> bool:
    left, jobs = dict(volumes), {job.name: job for job in all_jobs}
    now = 0.0
    while left:
        running = [jobs[name] for name in left if jobs[name].submit_s <= now]
        rates = _fair({job.name: job.bytes_per_second for job in running}, link)
        moments = [now + left[name] / rate for name, rate in rates.items()]
        moments += [jobs[name].submit_s for name in left if jobs[name].submit_s > now]
        soon = min(moments)
        for name, rate in rates.items():
            left[name] -= rate * (soon - now)
        now = soon
        for name in [name for name in rates if left[name] <= 1e-9 * volumes[name]]:
            if now > jobs[name].deadline_s:
                return False
            del left[name]
    return True


def _fair(wanted: dict[str, float], link: float) -> dict[str, float]:
    """Divides a link in a max-min fair way among jobs with rates of their own."""
    rates: dict[str, float] = {}
    for number, (name, rate) in enumerate(sorted(wanted.items(), key=lambda each: each[1])):
        rates[name] = min(rate, (link - sum(rates.values())) / (len(wanted) - number))
    return rates
