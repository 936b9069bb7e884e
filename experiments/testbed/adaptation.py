"""A split that adapts, live and in the simulator: D3N Figs. 11 and 12, dissertation 6.4.1."""

from __future__ import annotations

import statistics

from .course import Course, live, simulated
from .row import Bed, Line
from .scenario import Scenario, congested, moves

# Live and simulated may differ by this part.
_TOLERANCE = 0.15


def adaptation(bed: Bed) -> list[Line]:
    """Measures moving demand and a congested lake link, with an adaptive split and with halves."""
    return [
        *_lines(bed, "demand moves", "−19%", moves(bed.haste)),
        *_lines(bed, "a lake link congests", "−14%", congested(bed.haste)),
    ]


def _lines(bed: Bed, what: str, published: str, scenario: Scenario) -> list[Line]:
    expected = simulated(scenario, bed.lab, bed.folder / what.replace(" ", "-"))
    adaptive = _courses(bed, f"{what} adaptive", scenario, ())
    halves = _courses(bed, f"{what} halves", scenario, (50, 50))
    differences = [course.differences(expected["adaptive"]) for course in adaptive]
    gain = expected["adaptive"].run_s / expected["halves"].run_s - 1
    return [
        Line(
            f"{what}: run time of an adaptive split against halves (simulated {gain:+.0%})",
            f"{published}, simulated",
            "–",
            [one.run_s / other.run_s - 1 for one, other in zip(adaptive, halves, strict=True)],
            "{:+.0%}",
        ),
        _against(f"{what}, adaptive", adaptive, expected["adaptive"]),
        _against(f"{what}, halves", halves, expected["halves"]),
        Line(
            f"{what}: L1's share live and simulated, mean difference in percent of a node's room",
            "–",
            "≤ 15",
            [statistics.mean(each) * 100 for each in differences],
            "{:.0f}",
            most=_TOLERANCE * 100,
        ),
        Line(
            f"{what}: the same, greatest of any node at any moment",
            "–",
            "≤ 15",
            [max(each) * 100 for each in differences],
            "{:.0f}",
            most=_TOLERANCE * 100,
        ),
    ]


def _courses(bed: Bed, name: str, scenario: Scenario, split: tuple[int, ...]) -> list[Course]:
    """Returns the course of each round. Each round begins with empty stores."""
    courses = []
    with bed.cluster(name.replace(" ", "-"), scenario.shape(split)) as cluster:
        objects = {read.key: read.size for reads in scenario.reads.values() for read in reads}
        for key, size in objects.items():
            cluster.put(key, size)
        for turn in range(bed.rounds):
            if turn:
                cluster.restart_cold()
            courses.append(live(scenario, cluster))
    return courses


def _against(what: str, courses: list[Course], expected: Course) -> Line:
    return Line(
        f"{what}: run time, live in relation to simulated ({expected.run_s:.0f} s)",
        "–",
        "0.85 to 1.15",
        [course.run_s / expected.run_s for course in courses],
        least=1 - _TOLERANCE,
        most=1 + _TOLERANCE,
    )
