"""Hits on another node, against hits on the node that holds the objects and against those of an older build."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
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
"""


@dataclass(frozen=True)
class Binaries:
    """The measured binary, and an older one to compare it with, if there is one."""

    now: Path
    before: Path | None


@dataclass
class Pair:
    """A node that clients ask, and the node that holds the objects."""

    asked: Node
    holding: Node

    def server(self, name: str, node: Node) -> Server:
        """Returns one of the nodes as a server that is measured; the processor time of both counts."""
        return Server(name, node.url, lambda: [self.asked.pid, self.holding.pid])

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
    builds = {"this": binaries.now} | ({"before": binaries.before} if binaries.before else {})
    with ExitStack() as stack:
        pairs = {name: pair(stack, bed, name, binary, folder, environment) for name, binary in builds.items()}
        for case in cases(bed):
            measure(bed, page, case, pairs, rounds, seconds)


def pair(stack: ExitStack, bed: Bed, name: str, binary: Path, folder: Path, environment: dict[str, str]) -> Pair:
    """Returns two nodes that know each other."""
    seed = free_port()

    def node(role: str, port: int, weight: int) -> Node:
        tables = TABLES.format(port=port, seed=seed, weight=weight)
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

    both = Pair(holding=node("holding", seed, 10_000), asked=node("asked", free_port(), 1))
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


def measure(bed: Bed, page: Page, case: Case, pairs: Mapping[str, Pair], rounds: int, seconds: float) -> None:
    """Interleaved rounds; the ratios are those within a round."""
    servers = {name: both.server(name, both.asked) for name, both in pairs.items()}
    for name, server in servers.items():
        bed.verify(server, case.gets)
        pairs[name].holding.settle()
        bed.verify(server, case.gets)
    servers["local"] = pairs["this"].server("local", pairs["this"].holding)
    samples: dict[str, list[Sample]] = {name: [] for name in servers}
    for number in range(rounds):
        turn, names = number % len(servers), list(servers)
        for name in (*names[turn:], *names[:turn]):
            both = pairs.get(name)
            before = both.from_the_other() if both else 0
            samples[name].append(sample(bed, case, servers[name], seconds))
            if both and both.from_the_other() == before:
                raise RuntimeError(f"{case.name}: nothing came from the other node of {name}")
    for rival in [name for name in servers if name != "this"]:
        compare(page, case, samples, rival)


def compare(page: Page, case: Case, samples: Mapping[str, Sequence[Sample]], rival: str) -> None:
    """The rows of this build's hits on another node against others."""
    pages = (
        ("throughput", "bytes_per_second", 1 / GIB, "GiB/s", 2),
        ("CPU of both nodes per GiB", "cpu", 1e3, "ms", 0),
        ("the same, client included", "cpu_with_client", 1e3, "ms", 0),
    )
    for measure_, value, scale, unit, digits in pages:
        figures = {name: [getattr(one, value) for one in samples[name]] for name in ("this", rival)}
        ratios = [ours / theirs for ours, theirs in zip(figures["this"], figures[rival], strict=True)]
        absolute = ", ".join(f"{name} {statistics.median(own) * scale:.{digits}f}" for name, own in figures.items())
        page.add(Row(f"{case.name}, this to {rival}", measure_, Spread.of(ratios), None, f"{absolute} {unit}"))
