"""Reads by four nodes in a mode of cooperation, live and simulated."""

from __future__ import annotations

import csv
import json
import re
import statistics
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from net.cluster import Cluster
from net.objects import Read
from real.processes import run

from .row import Bed, Line, sound
from .scenario import Scenario

RACKS = range(1, 5)
# How the live nodes are told what a variant is: by a directory or by homes, by which policy, in which layers. One copy
# of each block is what nodes keep whose L1 has no room.
MODES: dict[str, dict[str, object]] = {
    "gwf": {"directory": True},
    "all-ar": {"directory": True, "policy": "lru"},
    "all-1r": {"policy": "lru", "split": (0, 100)},
}
# Live and simulated may differ by this part.
_TOLERANCE = 0.1


@dataclass(frozen=True)
class Course:
    """The duration of all reads, and for each byte of the objects: bytes from the lake, and of local hits."""

    run_s: float
    lake_reads: float
    local_hits: float


@dataclass(frozen=True)
class Rounds:
    """The courses of each round, by mode, live and simulated."""

    live: list[dict[str, Course]]
    simulated: list[dict[str, Course]]

    def ratios(self, fact: str, mode: str, other: str) -> list[float]:
        """Returns a fact of one mode in relation to another's, live, in each round."""
        return [getattr(courses[mode], fact) / getattr(courses[other], fact) for courses in self.live]


def footprint(scenario: Scenario) -> dict[str, int]:
    """Returns the objects that the scenario reads, and their sizes."""
    return {read.key: read.size for reads in scenario.reads.values() for read in reads}


def changed(scenario: Scenario, **settings: str) -> Scenario:
    """Returns the scenario with other values for settings that stand once in its file, by their last names."""
    text = scenario.experiment
    for name, value in settings.items():
        text, count = re.subn(rf'^{name} = "[^"]*"', f'{name} = "{value}"', text, flags=re.MULTILINE)
        if count != 1:
            raise ValueError(f"{name} stands {count} times in the experiment")
    return replace(scenario, experiment=text, settings=tomllib.loads(text))


def in_turn(reads: Sequence[Read]) -> dict[int, Sequence[Read]]:
    """Gives reads to the racks in turn."""
    return {rack: reads[number :: len(RACKS)] for number, rack in enumerate(RACKS)}


def measure(bed: Bed, name: str, scenarios: Sequence[Scenario], modes: Sequence[str]) -> Rounds:
    """Runs each scenario in each mode, live and in the simulator."""
    rounds = Rounds([], [])
    for turn, scenario in enumerate(scenarios):
        rounds.simulated.append(_simulated(scenario, bed.lab, bed.folder / f"{name}-{turn}"))
        rounds.live.append({mode: _live(bed, scenario, f"{name}-{turn}-{mode}", mode) for mode in modes})
    return rounds


def against_simulated(what: str, mode: str, rounds: Rounds, facts: Sequence[str]) -> list[Line]:
    """Returns a line for each fact: live in relation to simulated."""
    words = {"lake_reads": "lake bytes", "local_hits": "local hits", "run_s": "run time"}
    lines = []
    for fact in facts:
        form = "{:.0f} s" if fact == "run_s" else "{:.2f}"
        simulated = [getattr(courses[mode], fact) for courses in rounds.simulated]
        lines.append(
            Line(
                f"{what}, {mode}: {words[fact]}, live in relation to simulated "
                f"({form.format(statistics.median(simulated))})",
                "–",
                "0.9 to 1.1",
                [getattr(live[mode], fact) / one for live, one in zip(rounds.live, simulated, strict=True)],
                least=1 - _TOLERANCE,
                most=1 + _TOLERANCE,
            )
        )
    return lines


def _simulated(scenario: Scenario, lab: Path, folder: Path) -> dict[str, Course]:
    run([lab, "simulate", scenario.write(folder)])
    total = sum(footprint(scenario).values())
    with (folder / "results" / "results.csv").open(newline="") as results:
        rows = list(csv.DictReader(results))
    return {
        row["variant"]: Course(float(row["run_s"]), int(row["lake_bytes"]) / total, int(row["local_bytes"]) / total)
        for row in rows
    }


def _live(bed: Bed, scenario: Scenario, name: str, mode: str) -> Course:
    shape = replace(scenario.shape(()), **MODES[mode])  # type: ignore[arg-type]
    objects = footprint(scenario)
    with bed.cluster(name, shape) as cluster:
        for key, size in objects.items():
            cluster.put(key, size)
        return _run(cluster, scenario, sum(objects.values()))


def _run(cluster: Cluster, scenario: Scenario, total: int) -> Course:
    settings = {"connections": scenario.connections, "timeout_s": 120}
    plans = {rack: cluster.plan([rack], reads, **settings) for rack, reads in scenario.reads.items()}
    lake_bytes = received(cluster)
    outcomes = [sound(outcome) for outcome in cluster.read_all(plans).values()]
    lake_bytes = received(cluster) - lake_bytes
    run_s = max(outcome.ended_s for outcome in outcomes) - min(outcome.started_s for outcome in outcomes)
    return Course(run_s, lake_bytes / total, sent(cluster, "local") / total)


def received(cluster: Cluster) -> int:
    """Returns the bytes that the lake has sent to nodes, without heads: those that the simulator counts."""
    return sum(json.loads(node.ask("/status"))["lake"]["bytes_received"] for node in cluster.nodes.values())


def sent(cluster: Cluster, source: str) -> int:
    """Returns the bytes that nodes have sent to clients from this source."""
    counter = re.compile(rf'^shoal_read_bytes_total{{source="{source}"}} (\d+)$', re.MULTILINE)
    return sum(int(counter.findall(node.metrics())[0]) for node in cluster.nodes.values())
