"""Small objects through several builds of the node, side by side: `python -m bench.small OLD NEW...`.

Each round serves hot 4 KiB and 64 KiB objects and reads 2,000 cold ones of 4 KiB, with each build in turn. The
figures are ratios to the first build. `bench/run.sh` compares one build with nginx and the lake; ratios of two such
runs differ by more than two builds do.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from contextlib import ExitStack
from pathlib import Path

from real.lakes import LAKES, Lake
from real.node import Node
from real.scratch import scratch

from .bed import KIB, Bed, Server
from .hot import Case, Sample, sample
from .load import Get, generate
from .report import Spread

ONE_THREAD = {"TOKIO_WORKER_THREADS": "1"}
COLD_OBJECTS = 2000


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(prog="python -m bench.small", description=__doc__)
    parser.add_argument("builds", nargs="+", type=Path, help="release binaries; the first is the one compared with")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2, help="length of one hot run")
    parser.add_argument("--only", choices=("hot", "cold"), help="one part")
    arguments = parser.parse_args()
    builds = [path.resolve() for path in arguments.builds]
    with scratch("shoal-bench-") as folder, LAKES["versitygw"](folder / "lake", ()) as lake:
        bed = Bed(lake, folder / "www", folder / "requests")
        bed.create_bucket()
        if arguments.only != "cold":
            hot(bed, builds, folder, arguments.rounds, arguments.seconds)
        if arguments.only != "hot":
            cold(bed, builds, folder, arguments.rounds)
    return 0


def node(binary: Path, folder: Path, lake: Lake) -> Node:
    """Returns a node with an empty store and one worker thread."""
    return Node(
        binary, folder, lake.url, [lake.account], freshness="immutable", capacity="4GiB", environment=ONE_THREAD
    )


def hot(bed: Bed, builds: list[Path], folder: Path, rounds: int, seconds: float) -> None:
    """Measures hits while all builds run."""
    cases = [
        Case("hot 4 KiB", bed.put((f"hot-4k-{number}" for number in range(64)), 4 * KIB), 32, per_request=True),
        Case("hot 64 KiB", bed.put((f"hot-64k-{number}" for number in range(64)), 64 * KIB), 16, per_request=True),
    ]
    with ExitStack() as stack:
        servers = []
        for number, binary in enumerate(builds):
            running = stack.enter_context(node(binary, folder / f"hot-{number}", bed.lake))
            servers.append(Server(binary.name, running.url, lambda pid=running.pid: [pid]))
        for case in cases:
            samples: list[list[Sample]] = [[] for _ in servers]
            for server in servers:
                bed.verify(server, case.gets)
            for turn in range(rounds):
                for index in in_turn(len(servers), turn):
                    samples[index].append(sample(bed, case, servers[index], seconds))
            report(f"{case.name}: CPU per request", builds, [[one.cpu * 1e6 for one in own] for own in samples], "µs")
            rates = [[one.bytes_per_second / case_bytes(bed, case) for one in own] for own in samples]
            report(f"{case.name}: requests", builds, rates, "/s")


def case_bytes(bed: Bed, case: Case) -> int:
    """Returns the size of each object of a case."""
    return bed.sizes[case.gets[0].key]


def cold(bed: Bed, builds: list[Path], folder: Path, rounds: int) -> None:
    """Measures misses, with a new node with an empty store for each run."""
    gets = bed.put((f"cold-4k-{number}" for number in range(COLD_OBJECTS)), 4 * KIB)
    warm_up = [gets.pop() for _ in range(16)]
    rates: list[list[float]] = [[] for _ in builds]
    cpu: list[list[float]] = [[] for _ in builds]
    for turn in range(rounds):
        for index in in_turn(len(builds), turn):
            with node(builds[index], folder / f"cold-{turn}-{index}", bed.lake) as running:
                server = Server("node", running.url, list)
                bed.verify(server, warm_up)
                running.settle()
                before = worker_cpu_seconds(running.pid)
                rates[index].append(len(gets) / seconds_of_all(bed, server, gets))
                cpu[index].append((worker_cpu_seconds(running.pid) - before) / len(gets) * 1e6)
    report("cold 4 KiB: requests", builds, rates, "/s")
    report("cold 4 KiB: CPU per request", builds, cpu, "µs")


def worker_cpu_seconds(pid: int) -> float:
    """CPU time of the runtime's workers. Threads that write to the disk pay for the file system's mood instead."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    workers = (thread for thread in threads if (thread / "comm").read_text().startswith("tokio-"))
    return sum(int((worker / "schedstat").read_text().split()[0]) for worker in workers) / 1e9


def seconds_of_all(bed: Bed, server: Server, gets: list[Get]) -> float:
    """Returns the seconds that 64 connections take for all objects."""
    load = generate(server.url, bed.account, gets, bed.scratch, connections=64, seconds=60, once=True)
    if load.bad_statuses or load.broken or load.requests != len(gets):
        raise RuntimeError(f"{server.name}: {load}")
    return load.seconds


def in_turn(count: int, turn: int) -> list[int]:
    """Returns the numbers of all builds, with a different one first in each round."""
    return [(number + turn) % count for number in range(count)]


def report(measure: str, builds: list[Path], samples: list[list[float]], unit: str) -> None:
    """A line for each build: its median, and its ratio to the first build of the same round."""
    for binary, own in zip(builds, samples, strict=True):
        ratio = Spread.of([mine / first for mine, first in zip(own, samples[0], strict=True)])
        print(f"{measure}: {binary.name}: {statistics.median(own):.1f} {unit}, {ratio}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
