"""The course of a scenario, live and simulated: its duration, and the share of its room that each node gives to L1."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ALL_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from net.cluster import Client, Cluster
from net.reader import Outcome
from real.processes import run

from .row import sound
from .scenario import Change, Scenario


@dataclass
class Course:
    """Times are seconds from the beginning."""

    run_s: float = 0
    """The share of each node, by the number of the sample."""
    l1_shares: list[list[float]] = field(default_factory=list)

    def differences(self, other: Course) -> list[float]:
        """Returns the difference of each node's share at each moment that both courses have, in parts of its room."""
        moments = zip(self.l1_shares, other.l1_shares, strict=False)
        return [abs(mine - theirs) for one, two in moments for mine, theirs in zip(one, two, strict=True)]


def simulated(scenario: Scenario, lab: Path, folder: Path) -> dict[str, Course]:
    """Runs the simulator, and returns the courses by the names of the experiment's variants."""
    experiment = scenario.write(folder)
    run([lab, "simulate", experiment])
    courses: dict[str, Course] = {}
    with (folder / "results" / "results.csv").open(newline="") as results:
        for row in csv.DictReader(results):
            courses[row["variant"]] = Course(run_s=float(row["run_s"]))
    with (folder / "results" / "samples.csv").open(newline="") as samples:
        for row in csv.DictReader(samples):
            shares = courses[row["variant"]].l1_shares
            if row["node"] == "0":
                shares.append([])
            l1, l2 = int(row["l1_capacity_bytes"]), int(row["l2_capacity_bytes"])
            shares[-1].append(l1 / (l1 + l2))
    return courses


def live(scenario: Scenario, cluster: Cluster) -> Course:
    """Runs the scenario live: clients do its reads at nodes with empty stores, while its changes happen."""
    with ThreadPoolExecutor(2 * len(cluster.nodes)) as pool:
        return _Live(scenario, cluster, pool).run()


class _Live:
    def __init__(self, scenario: Scenario, cluster: Cluster, pool: ThreadPoolExecutor) -> None:
        self._scenario, self._cluster, self._pool = scenario, cluster, pool
        self._clients: dict[int, Client] = {}
        self._outcomes: dict[int, Future[Outcome]] = {}
        self._course = Course()

    def run(self) -> Course:
        for rack, reads in self._scenario.reads.items():
            self._clients[rack] = Client(rack, self._cluster.plan([rack], reads, **self._settings))
        # A run may have ended before a link was given its rate again.
        for change in self._scenario.changes:
            self._cluster.fabric.shape(f"lake-{change.rack}", self._scenario.shape(()).rates.lake)
        began = time.monotonic()
        for rack in self._clients:
            self._go(rack)
        for at_s, happens in self._plan():
            if self._is_over(until=began + at_s):
                break
            happens()
        outcomes = [sound(outcome.result()) for outcome in self._outcomes.values()]
        self._course.run_s = max(outcome.ended_s for outcome in outcomes) - began
        return self._course

    @property
    def _settings(self) -> dict[str, object]:
        return {"connections": self._scenario.connections, "timeout_s": 120}

    def _go(self, rack: int) -> None:
        self._clients[rack].go()
        self._outcomes[rack] = self._pool.submit(self._clients[rack].outcome)

    def _plan(self) -> Sequence[tuple[float, Callable[[], None]]]:
        """Returns the changes and their times, with samples for longer than any run."""
        changes = [(change.at_s, lambda change=change: self._change(change)) for change in self._scenario.changes]
        samples = [(number * self._scenario.sample_s, self._sample) for number in range(1000)]
        return sorted([*changes, *samples], key=lambda planned: planned[0])

    def _is_over(self, until: float) -> bool:
        """Waits until then, or until all clients are done."""
        left = max(0.0, until - time.monotonic())
        return not wait(self._outcomes.values(), left, return_when=ALL_COMPLETED).not_done

    def _sample(self) -> None:
        shares = []
        for rack in self._cluster.fabric.racks:
            targets = [layer["target_bytes"] for layer in self._cluster.layers(rack)]
            shares.append(targets[0] / sum(targets))
        self._course.l1_shares.append(shares)

    def _change(self, change: Change) -> None:
        if change.moves_to is not None:
            self._move(change.rack, change.moves_to)
        else:
            self._cluster.fabric.shape(f"lake-{change.rack}", change.lake_mbit)

    def _move(self, rack: int, to: int) -> None:
        """Moves the reads that the clients of `rack` have not done yet to the clients of `to`."""
        self._clients[rack].end()
        done = sound(self._outcomes[rack].result()).reads
        rest = self._scenario.reads[rack][done:]
        self._clients[to] = Client(to, self._cluster.plan([to], rest, **self._settings))
        self._go(to)
