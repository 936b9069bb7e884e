"""Warm reads of several sides in turn: the same load at each, round by round."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from real.lakes import LAKES, Account
from real.node import Node
from real.processes import run

from bench.load import Get, Load, generate
from bench.process_facts import cpu_seconds
from bench.report import Page
from bench.tier.bed import Options, TierBed


@dataclass
class Side:
    """The results of one side."""

    loads: list[Load] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        """Returns the medians."""
        p50 = median(load.p50_us for load in self.loads)
        rate = median(load.requests / load.seconds for load in self.loads)
        return f"{p50:.0f} µs ({rate:.0f}/s, {median(self.cpu_us):.0f} µs of CPU)"


def options_of(description: str | None, objects: int) -> tuple[Options, Page, Path | None]:
    """Parses the command line; returns the options, an empty page, and the file to which it is appended."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--shoal", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--lake", choices=LAKES, default="minio")
    parser.add_argument("--results", type=Path)
    given = parser.parse_args()
    options = Options(given.shoal.resolve(), given.rounds, given.seconds, objects, given.lake)
    version = run([options.binary, "--version"]).strip()
    page = Page(f"{version}, {options.lake}", f"{options.rounds} interleaved rounds of {options.seconds:g} s")
    return options, page, given.results


def append(page: Page, results: Path | None) -> None:
    """Appends a page to the file of results, if there is one."""
    if results:
        with results.open("a") as file:
            file.write("\n" + page.markdown(datetime.now(UTC)))


def measure(
    bed: TierBed,
    names: Sequence[str],
    place: Callable[[str], tuple[Node, Account, list[Get]]],
    connections: int,
) -> dict[str, Side]:
    """Reads at the place of each side in turn, each round beginning with another one. The first round warms up."""
    sides = {name: Side() for name in names}
    for turn in range(bed.options.rounds + 1):
        at = turn % len(names)
        for name in (*names[at:], *names[:at]):
            node, account, gets = place(name)
            before = cpu_seconds([node.pid])
            load = generate(
                node.url,
                account,
                gets,
                bed.scratch,
                connections=connections,
                seconds=bed.options.seconds,
            )
            if load.bad_statuses or load.broken:
                raise RuntimeError(f"{name}: {load}")
            if turn:
                sides[name].loads.append(load)
                sides[name].cpu_us.append((cpu_seconds([node.pid]) - before) / load.requests * 1e6)
    return sides
