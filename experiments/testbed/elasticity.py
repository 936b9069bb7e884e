"""Uniform reads at four nodes with a directory, live and simulated: dissertation 6.4.2, Figs. 6.8 and 6.9."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from net.objects import Read, whole

from .modes import MODES, RACKS, Rounds, against_simulated, changed, measure
from .row import MIB, Bed, Line
from .scenario import Scenario, scenario

_OBJECTS, _TIMES = 200, 12
# 50 GB and 200 GB in 400 objects of 125 MB and 500 MB, next to whole blocks.
_SIZES = {"50 GB": MIB // 8, "200 GB": MIB // 2}
# Other rates of the lake for all nodes in Gbit/s, as published, and for one node here.
_OTHER_LAKES = (("3.2", "4Mbit/s"), ("13.6", "17Mbit/s"))
_FACTS = ("lake_reads", "run_s")


def elasticity(bed: Bed) -> list[Line]:
    """Measures GWF against a copy at each reader and against one copy, for 50 GB and for 200 GB."""
    lines = []
    for name, size in _SIZES.items():
        scenarios = [_uniform(size, turn, bed.haste) for turn in range(bed.rounds)]
        lines += _lines(name, measure(bed, f"elasticity-{size}", scenarios, tuple(MODES)))
    for published, rate in _OTHER_LAKES if bed.haste == 1 else ():
        slower = [changed(_uniform(_SIZES["200 GB"], 0, bed.haste), lake=rate)]
        rounds = measure(bed, f"elasticity-{published}", slower, ("gwf", "all-ar"))
        lines += _lines_of_lake(f"200 GB, a lake of {published} Gbit/s", rounds)
    return lines


def _lines(name: str, rounds: Rounds) -> list[Line]:
    large = name == "200 GB"
    lines = [
        Line(
            f"{name}: bytes of the lake for each byte of the objects, GWF",
            "1.6" if large else "1",
            "1",
            [courses["gwf"].lake_reads for courses in rounds.live],
            most=1.1 if large else 1.02,
        ),
        Line(
            f"{name}: the same, a copy at each reader (All-AR)",
            "> 3.2" if large else "1",
            "–",
            [courses["all-ar"].lake_reads for courses in rounds.live],
        ),
        _slower(name, rounds, "all-1r", "one copy (All-1R)", "slower" if large else "1.2×", 1.0 if large else 1.2),
        _slower(name, rounds, "all-ar", "All-AR", "2.3×" if large else "1.4×", None if large else 0.95),
    ]
    if large:
        lines.append(_half_the_reads(name, rounds, "< 0.5"))
    for mode in MODES:
        lines += against_simulated(name, mode, rounds, _FACTS)
    return lines


def _lines_of_lake(name: str, rounds: Rounds) -> list[Line]:
    lines = [_slower(name, rounds, "all-ar", "All-AR", "–", None), _half_the_reads(name, rounds, "–")]
    for mode in ("gwf", "all-ar"):
        lines += against_simulated(name, mode, rounds, _FACTS)
    return lines


def _slower(name: str, rounds: Rounds, mode: str, words: str, published: str, least: float | None) -> Line:
    values = rounds.ratios("run_s", mode, "gwf")
    goal = "–" if least is None else f"≥ {least}×"
    return Line(f"{name}: run time of {words} in relation to GWF", published, goal, values, "{:.2f}×", least=least)


def _half_the_reads(name: str, rounds: Rounds, published: str) -> Line:
    values = rounds.ratios("lake_reads", "gwf", "all-ar")
    return Line(f"{name}: lake bytes of GWF in relation to those of All-AR", published, "< 0.5", values, most=0.5)


def _uniform(size: int, seed: int, haste: int) -> Scenario:
    """Each object is read as often as any other, at a rack by chance, in an order by chance."""
    chance = random.Random(f"{size} {seed}")
    reads = [whole(f"object-{number}", size) for number in range(_OBJECTS)] * (_TIMES // min(haste, 4))
    chance.shuffle(reads)
    spread: dict[int, list[Read]] = {rack: [] for rack in RACKS}
    for read in reads:
        spread[chance.choice(RACKS)].append(read)
    at_racks: dict[int, Sequence[Read]] = {**spread}
    return scenario(Path(__file__).parent / "elasticity" / "uniform.toml", 1, at_racks)
