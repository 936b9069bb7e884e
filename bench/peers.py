"""Hits on another node: the cost of authentication between nodes, with encryption and without."""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from real.node import Node
from real.processes import free_port

from .bed import GIB, KIB, MIB, Bed, Server
from .hot import Case, Sample, sample
from .report import Page, Row, Spread

# The node that is asked keeps nothing of its own and is home to next to nothing: all it gives comes from the other.
TABLES = """
[cooperation]
mode = "hierarchy"
listen = "127.0.0.1:{port}"
seeds = ["127.0.0.1:{seed}"]
layers = ["rack", "cluster"]
weight = {weight}
split = [0, 100]
secret_key = "what the nodes of this pair share"
{more}
"""


@dataclass(frozen=True)
class Binaries:
    """The measured binary, and an older one to compare it with, if there is one."""

    now: Path
    before: Path | None


@dataclass
class Pair:
    """A node that clients ask, and the node that holds the objects."""

    name: str
    asked: Node
    holding: Node
    samples: list[Sample] = field(default_factory=list)

    @property
    def server(self) -> Server:
        """Returns the server that is measured; the processor time of both nodes counts."""
        return Server(self.name, self.asked.url, lambda: [self.asked.pid, self.holding.pid])

    def from_the_other(self) -> int:
        """Returns the bytes that clients got from the node that holds the objects."""
        start = 'shoal_read_bytes_total{source="peer"} '
        lines = self.asked.metrics().splitlines()
        return sum(int(line.removeprefix(start)) for line in lines if line.startswith(start))


def run(
    bed: Bed,
    page: Page,
    binaries: Binaries,
    folder: Path,
    rounds: int,
    seconds: float,
    environment: dict[str, str],
) -> None:
    """Measures every case."""
    kinds = [("encrypted", binaries.now, ""), ("authenticated", binaries.now, "encrypt = false")]
    if binaries.before is not None:
        kinds.append(("before", binaries.before, ""))
    with ExitStack() as stack:
        pairs = [pair(stack, bed, kind, folder, environment) for kind in kinds]
        for case in cases(bed):
            measure(bed, page, case, pairs, rounds, seconds)


def pair(stack: ExitStack, bed: Bed, kind: tuple[str, Path, str], folder: Path, environment: dict[str, str]) -> Pair:
    """Returns two nodes that know each other."""
    name, binary, more = kind
    seed = free_port()

    def node(role: str, port: int, weight: int) -> Node:
        tables = TABLES.format(port=port, seed=seed, weight=weight, more=more)
        return stack.enter_context(
            Node(
                binary,
                folder / f"{name}-{role}",
                bed.lake.url,
                [bed.account],
                freshness="immutable",
                environment=environment,
                name=role,
                topology=f"dc1/a/{role}",
                tables=tables,
            )
        )

    both = Pair(name, holding=node("holding", seed, 10_000), asked=node("asked", free_port(), 1))
    for one in (both.asked, both.holding):
        for _ in range(200):
            if len(json.loads(one.ask("/members"))["members"]) == 2:
                break
    return both


def cases(bed: Bed) -> list[Case]:
    """Writes the objects and returns the cases."""
    return [
        Case("remote 64 MiB", bed.put((f"remote-64m-{number}" for number in range(2)), 64 * MIB), 4),
        Case("remote 4 MiB", bed.put((f"remote-4m-{number}" for number in range(32)), 4 * MIB), 8),
        Case("remote 64 KiB", bed.put((f"remote-64k-{number}" for number in range(64)), 64 * KIB), 16),
    ]


def measure(bed: Bed, page: Page, case: Case, pairs: Sequence[Pair], rounds: int, seconds: float) -> None:
    """Interleaved rounds; the ratios are those within a round."""
    for one in pairs:
        one.samples.clear()
        bed.verify(one.server, case.gets)
        one.holding.settle()
        bed.verify(one.server, case.gets)
    for number in range(rounds):
        turn = number % len(pairs)
        for one in (*pairs[turn:], *pairs[:turn]):
            before = one.from_the_other()
            one.samples.append(sample(bed, case, one.server, seconds))
            if one.from_the_other() == before:
                raise RuntimeError(f"{case.name}: nothing came from the other node of {one.name}")
    for ours, rival in itertools.combinations(pairs, 2):
        compare(page, case, ours, rival)


def compare(page: Page, case: Case, ours: Pair, rival: Pair) -> None:
    """The rows of two ways to speak."""
    pages = (
        ("throughput", "bytes_per_second", 1 / GIB, "GiB/s", 2),
        ("CPU of both nodes per GiB", "cpu", 1e3, "ms", 0),
        ("the same, client included", "cpu_with_client", 1e3, "ms", 0),
    )
    for measure_, value, scale, unit, digits in pages:
        ratios = [getattr(a, value) / getattr(b, value) for a, b in zip(ours.samples, rival.samples, strict=True)]
        absolute = ", ".join(
            f"{one.name} {statistics.median(getattr(sample_, value) for sample_ in one.samples) * scale:.{digits}f}"
            for one in (ours, rival)
        )
        page.add(
            Row(f"{case.name}, {ours.name} to {rival.name}", measure_, Spread.of(ratios), None, f"{absolute} {unit}")
        )
