"""Facebook's jobs at four nodes with a directory, live and simulated: dissertation 6.5.2, Figs. 6.12 and 6.13."""

from __future__ import annotations

from pathlib import Path

from .jobs import jobs, requests
from .modes import MODES, Rounds, against_simulated, changed, in_turn, measure
from .row import Bed, Line
from .scenario import Scenario, scenario

# A 2,048th of the published bytes, which are a tenth of the traced ones; the trace here has half of those. So requests
# of 128 MiB become 64 KiB, the smallest block that a directory enters.
_SCALE, _REQUEST_BYTES = 5 * 2048, 64 << 10
# 32 GB and 64 GB in each of four nodes, and the tenth that a node keeps free.
_CAPACITIES = {"128 GB": "17200KB", "256 GB": "34400KB"}
_FACTS = ("lake_reads", "local_hits", "run_s")


def jobs_directory(bed: Bed) -> list[Line]:
    """Measures GWF against one copy and against a copy at each reader, with both sizes of the caches."""
    lines = []
    for name, capacity in _CAPACITIES.items():
        scenarios = [changed(_scenario(bed.haste), capacity=capacity)] * bed.rounds
        lines += _lines(f"jobs, {name}", measure(bed, f"jobs-{capacity}", scenarios, tuple(MODES)))
    return lines


def _scenario(haste: int) -> Scenario:
    """The requests of the jobs in order, given to the racks in turn."""
    reads = requests(jobs(haste, _SCALE), _REQUEST_BYTES)
    return scenario(Path(__file__).parent / "jobs_directory" / "jobs.toml", 1, in_turn(reads))


def _lines(name: str, rounds: Rounds) -> list[Line]:
    lines = [
        Line(
            f"{name}: lake bytes of GWF in relation to those of one copy (All-1R)",
            "≤ 1",
            "≤ 1",
            rounds.ratios("lake_reads", "gwf", "all-1r"),
            most=1.0,
        ),
        Line(
            f"{name}: local hits of GWF in relation to those of a copy at each reader (All-AR)",
            "≥ 1",
            "≥ 1",
            rounds.ratios("local_hits", "gwf", "all-ar"),
            least=1.0,
        ),
    ]
    for mode, words in (("all-1r", "All-1R"), ("all-ar", "All-AR")):
        values = rounds.ratios("run_s", mode, "gwf")
        lines.append(
            Line(f"{name}: run time of {words} in relation to GWF", "slower", "≥ 1×", values, "{:.2f}×", least=1.0)
        )
    for mode in MODES:
        lines += against_simulated(name, mode, rounds, _FACTS)
    return lines
