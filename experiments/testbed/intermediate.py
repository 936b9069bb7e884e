"""Facebook's jobs with their intermediate data: dissertation Fig. 6.14."""

from __future__ import annotations

import json
import random
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass

from net.cluster import BACK, BUCKET, Cluster, Remote, Shape
from net.fabric import Rates
from net.objects import Read, ranges, whole

from .jobs import Job, jobs, sizes
from .mapper import Task, Tasks, Took
from .row import CLIENT_MBIT, LAKE_MBIT, MIB, NODE_MBIT, RACK_MBIT, Bed, Line, Unsound, sound

# The first jobs: three runs a round, and each writes as well.
_PART_OF_JOBS = 3
_REQUEST_BYTES = MIB
# "1.5 TB of intermediate data and 540 GB of output data is written" for 8 TB that are read (6.1.2, 6.5.2). The trace
# has the outputs of its jobs; their intermediate data is spread as their inputs are.
_BETWEEN_PER_INPUT = 1.5 / 8
# 512 GB to read from, for 8 TB that are read.
_CACHE_PER_INPUT = 0.512 / 8
_RACKS = (1, 2)
# "24 client nodes, 6 per cache".
_MAPPERS = 6
# D4N flushes old objects; with this age, nodes flush while the jobs run. Short-lived objects stay for longer
# than any run.
_AGE = "5s"
_D4N, _THROUGH, _AROUND = "back", "through", "around"
_NAMESPACE = "mappers"
# The time for which a node may not know a hint that another one has.
_KNOWN_S = 30


@dataclass(frozen=True)
class _Run:
    """One mode in one round."""

    seconds: float
    """Bytes that the lake was sent, headers and acknowledgements included, for each byte of intermediate data."""
    sent: float
    """Objects that nodes brought to the lake later, beyond the outputs."""
    flushed_in_vain: int
    steps_s: dict[str, float]


def intermediate(bed: Bed, hinted: bool = False) -> list[Line]:
    """Measures the jobs on empty stores, written back into the tier, through the cache, and around it.

    With `hinted`, no header says that intermediate data is short-lived: a hint with the stages of the run does.
    """
    row = "intermediate-hints" if hinted else "intermediate"
    trace = jobs(bed.haste)
    trace = trace[: len(trace) // _PART_OF_JOBS]
    lengths = sizes(trace)
    capacity = int(sum(job.input_bytes for job in trace) * _CACHE_PER_INPUT) // len(_RACKS)
    shape = Shape(
        len(_RACKS),
        Rates(client=CLIENT_MBIT, node=NODE_MBIT, rack=RACK_MBIT, lake=LAKE_MBIT),
        capacity=f"{max(capacity, 4 * MIB)}B",
        block_size="256KiB",
        split=(50, 50),
        written_back=_AGE,
        # All scratch data of an identity is its own.
        permission="1m",
        tables=f'[[hints.rule]]\nnamespace = "{_NAMESPACE}"\n' if hinted else "",
    )
    found: dict[str, list[_Run]] = {_D4N: [], _THROUGH: [], _AROUND: []}
    with bed.cluster(row, shape) as cluster:
        for path, size in lengths.items():
            cluster.put(path, size)
        for turn in range(bed.rounds):
            modes = list(found)
            for mode in (*modes[turn % 3 :], *modes[: turn % 3]):
                cluster.restart_cold()
                marks = _Marks(cluster, turn) if hinted and mode == _D4N else None
                found[mode].append(_run(cluster, trace, lengths, (mode, turn), marks))
    return _lines(found, "Facebook with intermediate data" + (", marked by a hint" if hinted else ""))


class _Marks:
    """The hint of a run, which says that what its mappers write between is of no use after it."""

    def __init__(self, cluster: Cluster, turn: int) -> None:
        self._cluster, self._turn = cluster, turn

    def begin(self) -> None:
        """Sends the start to one node, and waits until the others know it."""
        between = f"s3://{BUCKET}/{_between(_D4N, self._turn).rstrip('/')}"
        stages = [{"name": "map", "writes": [between], "life": "run"}]
        self._send("START", {"shoal": {"stages": stages}})
        for node in self._cluster.nodes.values():
            ends = time.monotonic() + _KNOWN_S
            while not any(hint["keeps"] for hint in self._listed(node.request("/hints"))):
                if time.monotonic() > ends:
                    raise Unsound(f"a node does not know the hint after {_KNOWN_S} s")
                time.sleep(0.1)

    def end(self) -> None:
        """Sends the end."""
        self._send("COMPLETE", {})

    def _send(self, phase: str, facets: dict[str, object]) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        run = f"00000000-0000-4000-8000-{self._turn:012x}"
        job = {"namespace": _NAMESPACE, "name": "map", "facets": facets}
        event = {"eventType": phase, "eventTime": now, "run": {"runId": run}, "job": job}
        request = next(iter(self._cluster.nodes.values())).request("/api/v1/lineage", "POST")
        request.data = json.dumps(event).encode()
        request.add_header("content-type", "application/json")
        urllib.request.urlopen(request, timeout=10).close()

    @staticmethod
    def _listed(request: urllib.request.Request) -> list[dict[str, object]]:
        with urllib.request.urlopen(request, timeout=10) as answer:
            hints: list[dict[str, object]] = json.load(answer)["hints"]
        return hints


def _lines(found: dict[str, list[_Run]], what: str) -> list[Line]:
    ours = found[_D4N]
    lines = [
        Line(
            f"{what}: run time, {mode} against back",
            "slowest of four" if mode == _AROUND else "–",
            "> 1×: D4N first",
            [other.seconds / mine.seconds for other, mine in zip(found[mode], ours, strict=True)],
            "{:.2f}×",
            least=1.0,
        )
        for mode in (_AROUND, _THROUGH)
    ]
    vain = [float(run.flushed_in_vain) for run in ours]
    lines.append(Line(f"{what}: objects that die young and are flushed", "0", "0", vain, "{:.0f}", most=0))
    for mode, runs in found.items():
        named = f"{what}, {mode}"
        lines.append(Line(f"{named}: run time, s", "–", "–", [run.seconds for run in runs], "{:.1f}"))
        sent = [run.sent for run in runs]
        lines.append(Line(f"{named}: bytes to the lake but outputs, for each intermediate byte", "–", "–", sent))
    return lines


def _run(
    cluster: Cluster, trace: Sequence[Job], lengths: dict[str, int], which: tuple[str, int], marks: _Marks | None
) -> _Run:
    mode, turn = which
    tasks = _tasks(trace, lengths, which)
    between = sum(task.between_bytes for mine in tasks.values() for task in mine)
    outputs = [task for mine in tasks.values() for task in mine if task.output_bytes]
    before, flushed = cluster.fabric.lake_bytes_sent(), _flushed(cluster)
    is_short = mode == _D4N and not marks
    plans = {rack: _plan(cluster, rack, mine, mode, is_short) for rack, mine in tasks.items()}
    clients = {rack: Remote(rack, "testbed.mapper", plan) for rack, plan in plans.items()}
    if marks:
        marks.begin()
    for client in clients.values():
        client.go()
    took = [Took(**json.loads(client.last_line())) for client in clients.values()]
    if marks:
        marks.end()
    cluster.flush()
    flushed = _flushed(cluster) - flushed
    sent = cluster.fabric.lake_bytes_sent() - before - sum(task.output_bytes for task in outputs)
    # The outputs are at the lake, as they should be.
    checked = random.Random(turn).sample(outputs, min(50, len(outputs)))
    sound(cluster.read_past(1, [whole(task.output, task.output_bytes) for task in checked]))
    expected = len(outputs) if mode == _D4N else 0
    if flushed < expected:
        raise Unsound(f"{flushed} of {expected} outputs were flushed")
    steps: dict[str, float] = {}
    for one in took:
        for step, seconds in one.steps_s.items():
            steps[step] = steps.get(step, 0.0) + seconds
    told = ", ".join(f"{step} {seconds:.1f}" for step, seconds in steps.items())
    run = _Run(
        max(one.ended_s for one in took) - min(one.started_s for one in took), sent / between, flushed - expected, steps
    )
    print(f"intermediate, {mode}, round {turn}: {run.seconds:.1f} s; of all mappers: {told}", flush=True)
    return run


def _tasks(trace: Sequence[Job], lengths: dict[str, int], which: tuple[str, int]) -> dict[int, list[Task]]:
    """Makes each request of a job a task at a random rack; the racks are the same in all modes of a round."""
    mode, turn = which
    chance = random.Random(turn)
    tasks: dict[int, list[Task]] = {rack: [] for rack in _RACKS}
    for number, job in enumerate(trace):
        requests = ranges(job.path, job.input_bytes, _REQUEST_BYTES)
        for part, read in enumerate(requests):
            task = Task(
                Read(read.key, read.first, read.length, lengths[job.path]),
                f"{_between(mode, turn)}{number}-{part}",
                int(read.length * _BETWEEN_PER_INPUT),
                f"{_folder(mode, turn)}{number}-{part}-output",
                job.output_bytes * read.length // job.input_bytes,
            )
            tasks[chance.choice(_RACKS)].append(task)
    return tasks


def _folder(mode: str, turn: int) -> str:
    # No rule is about names that do not go back: their reads need no registry.
    return f"{BACK if mode == _D4N else ''}{mode}-{turn}/"


def _between(mode: str, turn: int) -> str:
    return f"{_folder(mode, turn)}between/"


def _plan(cluster: Cluster, rack: int, tasks: Sequence[Task], mode: str, is_short: bool) -> str:
    account = cluster.lake.account
    headers = {"x-shoal-write": mode}
    short = {"x-shoal-lifetime": "short"} if is_short else {}
    return Tasks(
        cluster.nodes[rack].url,
        account.access_key,
        account.secret_key,
        BUCKET,
        tasks,
        _MAPPERS,
        {**headers, **short},
        headers,
    ).to_json()


def _flushed(cluster: Cluster) -> int:
    """Returns the number of objects that the nodes have brought to the lake since they started."""
    name = 'shoal_written_back_total{outcome="flushed"} '
    lines = (line for node in cluster.nodes.values() for line in node.metrics().splitlines())
    return sum(int(line.removeprefix(name)) for line in lines if line.startswith(name))
