"""Uniform reads at four nodes with a directory, live and simulated: dissertation 6.4.2, Figs. 6.8 and 6.9."""

from __future__ import annotations

import csv
import json
import random
import statistics
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from net.cluster import Cluster
from net.objects import Read, whole
from real.processes import run

from .row import MIB, Bed, Line, sound
from .scenario import Scenario, scenario

_OBJECTS, _TIMES = 200, 12
_RACKS = range(1, 5)
# 50 GB and 200 GB in 400 objects of 125 MB and 500 MB, next to whole blocks.
_SIZES = {"50 GB": MIB // 8, "200 GB": MIB // 2}
# How the live nodes are told what a variant is: by a directory or by homes, by which policy, in which layers. One copy
# of each block is what nodes keep whose L1 has no room.
_VARIANTS: dict[str, dict[str, object]] = {
    "gwf": {"directory": True},
    "all-ar": {"directory": True, "policy": "lru"},
    "all-1r": {"policy": "lru", "split": (0, 100)},
}
# The rate of the lake for all nodes in Gbit/s, as published, and for one node here.
_LAKE, _OTHER_LAKES = ("5.6", "7Mbit/s"), (("3.2", "4Mbit/s"), ("13.6", "17Mbit/s"))
# Live and simulated may differ by this part.
_TOLERANCE = 0.1


@dataclass(frozen=True)
class _Course:
    """The duration of all reads, and the bytes from the lake for each byte of the objects."""

    run_s: float
    lake_reads: float


def elasticity(bed: Bed) -> list[Line]:
    """Measures GWF against a copy at each reader and against one copy, for 50 GB and for 200 GB."""
    lines = []
    for name, size in _SIZES.items():
        measured, expected = _rounds(bed, size, bed.rounds, tuple(_VARIANTS))
        lines += _lines(name, measured, expected)
    for lake in _OTHER_LAKES if bed.haste == 1 else ():
        measured, expected = _rounds(bed, _SIZES["200 GB"], 1, ("gwf", "all-ar"), lake)
        lines += _lines_of_lake(f"200 GB, a lake of {lake[0]} Gbit/s", measured, expected)
    return lines


def _rounds(
    bed: Bed, size: int, rounds: int, variants: Sequence[str], lake: tuple[str, str] = _LAKE
) -> tuple[list[dict[str, _Course]], list[dict[str, _Course]]]:
    """Returns the courses of each round, live and simulated."""
    measured: list[dict[str, _Course]] = []
    expected: list[dict[str, _Course]] = []
    for turn in range(rounds):
        uniform = _over(_uniform(size, turn, bed.haste), lake[1])
        name = f"{size}-{lake[0]}-{turn}"
        expected.append(_simulated(uniform, bed.binary, bed.folder / f"elasticity-{name}", size))
        measured.append({each: _live(bed, uniform, f"{name}-{each}", each) for each in variants})
    return measured, expected


def _lines(name: str, measured: Sequence[dict[str, _Course]], expected: Sequence[dict[str, _Course]]) -> list[Line]:
    large = name == "200 GB"
    lines = [
        Line(
            f"{name}: bytes of the lake for each byte of the objects, GWF",
            "1.6" if large else "1",
            "1",
            [courses["gwf"].lake_reads for courses in measured],
            most=1.1 if large else 1.02,
        ),
        Line(
            f"{name}: the same, a copy at each reader (All-AR)",
            "> 3.2" if large else "1",
            "–",
            [courses["all-ar"].lake_reads for courses in measured],
        ),
        _slower(name, measured, "all-1r", "one copy (All-1R)", "slower" if large else "1.2×", 1.0 if large else 1.2),
        _slower(name, measured, "all-ar", "All-AR", "2.3×" if large else "1.4×", None if large else 0.95),
    ]
    if large:
        lines.append(
            Line(
                f"{name}: lake bytes of GWF in relation to those of All-AR",
                "< 0.5",
                "< 0.5",
                [courses["gwf"].lake_reads / courses["all-ar"].lake_reads for courses in measured],
                most=0.5,
            )
        )
    for variant in _VARIANTS:
        lines += _against(f"{name}, {variant}", variant, measured, expected)
    return lines


def _lines_of_lake(
    name: str, measured: Sequence[dict[str, _Course]], expected: Sequence[dict[str, _Course]]
) -> list[Line]:
    reads = [courses["gwf"].lake_reads / courses["all-ar"].lake_reads for courses in measured]
    lines = [
        _slower(name, measured, "all-ar", "All-AR", "–", None),
        Line(f"{name}: lake bytes of GWF in relation to those of All-AR", "–", "< 0.5", reads, most=0.5),
    ]
    for variant in ("gwf", "all-ar"):
        lines += _against(f"{name}, {variant}", variant, measured, expected)
    return lines


def _slower(
    name: str, measured: Sequence[dict[str, _Course]], variant: str, words: str, published: str, least: float | None
) -> Line:
    values = [courses[variant].run_s / courses["gwf"].run_s for courses in measured]
    goal = "–" if least is None else f"≥ {least}×"
    return Line(f"{name}: run time of {words} in relation to GWF", published, goal, values, "{:.2f}×", least=least)


def _against(
    what: str, variant: str, measured: Sequence[dict[str, _Course]], expected: Sequence[dict[str, _Course]]
) -> list[Line]:
    lines = []
    for fact, form in (("lake_reads", "{:.2f}"), ("run_s", "{:.0f} s")):
        simulated = [getattr(courses[variant], fact) for courses in expected]
        lines.append(
            Line(
                f"{what}: {'lake bytes' if fact == 'lake_reads' else 'run time'}, live in relation to simulated "
                f"({form.format(statistics.median(simulated))})",
                "–",
                "0.9 to 1.1",
                [getattr(live[variant], fact) / one for live, one in zip(measured, simulated, strict=True)],
                least=1 - _TOLERANCE,
                most=1 + _TOLERANCE,
            )
        )
    return lines


def _uniform(size: int, seed: int, haste: int) -> Scenario:
    """Each object is read as often as any other, at a rack by chance, in an order by chance."""
    chance = random.Random(f"{size} {seed}")
    reads = [whole(f"object-{number}", size) for number in range(_OBJECTS)] * (_TIMES // min(haste, 4))
    chance.shuffle(reads)
    spread: dict[int, list[Read]] = {rack: [] for rack in _RACKS}
    for read in reads:
        spread[chance.choice(_RACKS)].append(read)
    return scenario(Path(__file__).parent / "elasticity" / "uniform.toml", 1, spread)


def _over(uniform: Scenario, lake: str) -> Scenario:
    """Returns the scenario with another rate of the lake for a node."""
    text = uniform.experiment.replace(f'lake = "{_LAKE[1]}"', f'lake = "{lake}"')
    return replace(uniform, experiment=text, settings=tomllib.loads(text))


def _simulated(uniform: Scenario, binary: Path, folder: Path, size: int) -> dict[str, _Course]:
    run([binary, "sim", uniform.write(folder)])
    with (folder / "results" / "results.csv").open(newline="") as results:
        rows = list(csv.DictReader(results))
    return {row["variant"]: _Course(float(row["run_s"]), int(row["lake_bytes"]) / (_OBJECTS * size)) for row in rows}


def _live(bed: Bed, uniform: Scenario, name: str, variant: str) -> _Course:
    shape = replace(uniform.shape(()), **_VARIANTS[variant])  # type: ignore[arg-type]
    with bed.cluster(f"elasticity-{name}", shape) as cluster:
        objects = {read.key: read.size for reads in uniform.reads.values() for read in reads}
        for key, size in objects.items():
            cluster.put(key, size)
        return _run(cluster, uniform, sum(objects.values()))


def _run(cluster: Cluster, uniform: Scenario, footprint: int) -> _Course:
    settings = {"connections": uniform.connections, "timeout_s": 120}
    plans = {rack: cluster.plan([rack], reads, **settings) for rack, reads in uniform.reads.items()}
    before = _received(cluster)
    outcomes = [sound(outcome) for outcome in cluster.read_all(plans).values()]
    lake_bytes = _received(cluster) - before
    run_s = max(outcome.ended_s for outcome in outcomes) - min(outcome.started_s for outcome in outcomes)
    return _Course(run_s, lake_bytes / footprint)


def _received(cluster: Cluster) -> int:
    """Returns the bytes that the lake has sent to nodes, without heads: those that the simulator counts."""
    return sum(json.loads(node.ask("/status"))["lake"]["bytes_received"] for node in cluster.nodes.values())
