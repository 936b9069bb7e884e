"""Hot GETs: a node's hits against nginx with sendfile and beside Varnish, the same bytes from all."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from .bed import BUCKET, GIB, KIB, MIB, Bed, Server
from .load import Get, Load, generate
from .process_facts import cpu_seconds, machine_cpu_seconds
from .report import Goal, Page, Row, Spread

LARGE_OBJECT = 256 * MIB
RANGE = 4 * MIB


@dataclass(frozen=True)
class Case:
    """The reads, the number of connections, and the goals."""

    name: str
    gets: Sequence[Get]
    connections: int
    throughput: Goal | None = None
    cpu: Goal | None = None
    """CPU is given per GiB; for small objects per request."""
    per_request: bool = False
    p99: Goal | None = None
    """Goals of the node alone: thousand requests a second, and milliseconds."""
    rate: Goal | None = None
    p99_ms: Goal | None = None


@dataclass(frozen=True)
class Sample:
    """One server's figures in one round."""

    bytes_per_second: float
    requests_per_second: float
    cpu: float
    """Server and client together: the kernel charges the work of a loopback connection to whichever side happens to
    run, above all on a busy machine, so the server's share alone can mislead."""
    cpu_with_client: float
    """The share of the processors that other processes took."""
    others: float
    p50_us: float
    p99_us: float


def cases(bed: Bed) -> list[Case]:
    """Writes the objects and returns the cases."""
    whole = bed.put((f"hot-64m-{number}" for number in range(2)), 64 * MIB)
    (large,) = bed.put(["hot-large"], LARGE_OBJECT)
    medium = bed.put((f"hot-64k-{number}" for number in range(64)), 64 * KIB)
    small = bed.put((f"hot-4k-{number}" for number in range(64)), 4 * KIB)
    tiny = bed.put((f"hot-1k-{number}" for number in range(64)), KIB)
    large_throughput, large_cpu = Goal(1.5, at_least=True), Goal(0.7)
    return [
        Case("hot 64 MiB", whole, 4, large_throughput, large_cpu),
        Case("hot 4 MiB ranges", ranges(large), 8, large_throughput, large_cpu),
        Case("hot 64 KiB", medium, 16, Goal(1, at_least=True), Goal(1), per_request=True),
        Case("hot 4 KiB", small, 32, Goal(1.1, at_least=True), Goal(1.15), per_request=True, p99=Goal(2)),
        Case("hot 4 KiB, presigned", [replace(get, presigned=True) for get in small], 32, per_request=True),
        Case("hot 1 KiB", tiny, 64, per_request=True, rate=Goal(30, at_least=True), p99_ms=Goal(3)),
    ]


def ranges(large: Get) -> list[Get]:
    """Returns ranges of the object. Every other one starts at a multiple of its size, the rest anywhere."""
    chance = random.Random(1)
    starts = (
        chance.randrange(LARGE_OBJECT // RANGE) * RANGE if number % 2 else chance.randrange(LARGE_OBJECT - RANGE)
        for number in range(256)
    )
    return [Get(BUCKET, large.key, f"bytes={start}-{start + RANGE - 1}") for start in starts]


@dataclass(frozen=True)
class Servers:
    """The node, the rivals that its goals are about, and others whose figures stand beside."""

    node: Server
    rivals: Sequence[Server]
    beside: Sequence[Server] = ()


def measure(bed: Bed, page: Page, case: Case, among: Servers, rounds: int, seconds: float) -> None:
    """Measures interleaved rounds; the ratios are those of the node to the better rival of each round."""
    servers = (among.node, *among.rivals, *among.beside)
    for server in servers:
        bed.verify(server, case.gets)
    samples: dict[str, list[Sample]] = {server.name: [] for server in servers}
    for number in range(rounds):
        # The order turns, so that no server always follows the same one.
        turn = number % len(servers)
        for server in (*servers[turn:], *servers[:turn]):
            samples[server.name].append(sample(bed, case, server, seconds))
    compare(page, case, samples, among)


def sample(bed: Bed, case: Case, server: Server, seconds: float) -> Sample:
    """Runs the load generator once."""
    server_before, (busy_before, all_before) = cpu_seconds(server.pids()), machine_cpu_seconds()
    load = generate(server.url, bed.account, case.gets, bed.scratch, connections=case.connections, seconds=seconds)
    used, (busy, everything) = cpu_seconds(server.pids()) - server_before, machine_cpu_seconds()
    require_clean(case.name, server, load)
    both, units = used + load.client_cpu_seconds, load.requests if case.per_request else load.bytes / GIB
    return Sample(
        bytes_per_second=load.bytes / load.seconds,
        requests_per_second=load.requests / load.seconds,
        cpu=used / units,
        cpu_with_client=both / units,
        others=max(0.0, (busy - busy_before - both) / (everything - all_before)),
        p50_us=load.p50_us,
        p99_us=load.p99_us,
    )


def require_clean(case: str, server: Server, load: Load) -> None:
    """Raises if a run has errors, because its figures are invalid then."""
    if load.bad_statuses or load.broken or not load.requests:
        raise RuntimeError(f"{case} at {server.name}: {load}")


def compare(page: Page, case: Case, samples: dict[str, list[Sample]], among: Servers) -> None:
    """Adds the rows of a case: in each round the node against the better rival, measure by measure."""

    def row(
        measure: str, value: str, goal: Goal | None, unit: str, scale: float, digits: int, best: Callable[..., float]
    ) -> None:
        rounds = zip(*(samples[server.name] for server in (among.node, *among.rivals)), strict=True)
        ratios = [getattr(mine, value) / best(getattr(other, value) for other in others) for mine, *others in rounds]
        absolute = (
            f"{name} {statistics.median(getattr(one, value) for one in own) * scale:.{digits}f}"
            for name, own in samples.items()
        )
        page.add(Row(case.name, measure, Spread.of(ratios), goal, f"{', '.join(absolute)} {unit}"))

    row("throughput", "bytes_per_second", case.throughput, "GiB/s", 1 / GIB, 2, max)
    per, unit, scale, digits = ("request", "µs", 1e6, 1) if case.per_request else ("GiB", "ms", 1e3, 0)
    row(f"CPU per {per}", "cpu", case.cpu, unit, scale, digits, min)
    row(f"CPU per {per}, client included", "cpu_with_client", None, unit, scale, digits, min)
    if case.p99 is not None:
        row("p50", "p50_us", None, "µs", 1, 0, min)
        row("p99", "p99_us", case.p99, "µs", 1, 0, min)
    own = samples[among.node.name]
    if case.rate is not None:
        rate = Spread.of([one.requests_per_second / 1e3 for one in own])
        page.add(Row(case.name, "thousand requests a second", rate, case.rate, "the node alone, one worker thread"))
    if case.p99_ms is not None:
        p99 = Spread.of([one.p99_us / 1e3 for one in own])
        page.add(Row(case.name, "p99 in ms", p99, case.p99_ms, "the node alone, one worker thread"))
    others = Spread.of([one.others for own in samples.values() for one in own])
    if others.highest > 0.1:
        page.note(f"{case.name}: other processes took {others} of the processors while it ran.")
