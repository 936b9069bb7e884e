"""Small durable writes through several builds of the node, side by side: `python -m bench.tier.puts OLD NEW...`.

Each round writes new objects of 4 KiB below a rule with each build in turn, into a new tier: a folder with its
registry, or an S3 store with an etcd of three members. Nothing is flushed meanwhile. The figures are ratios to the
first build. With `--receipts` each build also writes into a tier that has receipts.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from real.etcd import Etcd
from real.lakes import LAKES, Lake
from real.node import Node
from real.scratch import scratch

from bench.bed import BUCKET, KIB
from bench.load import Put, generate
from bench.process_facts import cpu_seconds
from bench.report import Spread
from bench.small import in_turn

from .bed import BACK, TIER_BUCKET, at_etcd, in_folder, make_bucket, tables

SIZE, CLIENTS = 4 * KIB, 16
# Fewer than what one client may begin at once.
WRITES = 15_000
MEMBERS = ("127.0.0.1",) * 3


@dataclass(frozen=True)
class Side:
    """A build, and whether its tier has receipts."""

    binary: Path
    has_receipts: bool

    def __str__(self) -> str:
        """Returns the name of a row."""
        return f"{self.binary}{' with receipts' if self.has_receipts else ''}"


@dataclass(frozen=True)
class Sample:
    """One run of one build."""

    a_second: float
    p50_ms: float
    p99_ms: float
    cpu_us: float


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(prog="python -m bench.tier.puts", description=__doc__)
    parser.add_argument("builds", nargs="+", type=Path, help="release binaries; the first is the one compared with")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--writes", type=int, default=WRITES)
    parser.add_argument("--receipts", action="store_true", help="each build with receipts as well")
    parser.add_argument("--only", choices=("folder", "etcd"), help="one kind of tier")
    arguments = parser.parse_args()
    builds = [path.resolve() for path in arguments.builds]
    kinds_of_tiers = (False, True) if arguments.receipts else (False,)
    sides = [Side(build, has_receipts) for build in builds for has_receipts in kinds_of_tiers]
    for kind in (arguments.only,) if arguments.only else ("folder", "etcd"):
        with scratch("shoal-puts-") as folder, LAKES["versitygw"](folder / "lake", ()) as lake:
            make_bucket(lake, BUCKET)
            print(f"{kind}: fsync of 4 KiB takes {fsync_ms(folder):.2f} ms", flush=True)
            samples: list[list[Sample]] = [[] for _ in sides]
            for turn in range(arguments.rounds):
                for index in in_turn(len(sides), turn):
                    place = folder / f"{kind}-{turn}-{index}"
                    samples[index].append(sample(sides[index], place, lake, kind, arguments.writes))
            report(kind, sides, samples)
    return 0


def sample(side: Side, folder: Path, lake: Lake, kind: str, writes: int) -> Sample:
    """Writes objects through one node into a new tier."""
    with ExitStack() as stack:
        tier = in_folder(folder / "tier") if kind == "folder" else three_members(folder, stack)
        tier += "receipts = true\n" if side.has_receipts else ""
        # A short-lived permission would be asked for again meanwhile.
        described = tables(tier, permission="10m")
        node = stack.enter_context(Node(side.binary, folder / "node", lake.url, [lake.account], tables=described))
        headers = {"x-shoal-write": "back"}
        puts = [Put(BUCKET, f"{BACK}{number:06}", "x" * SIZE, headers) for number in range(writes + CLIENTS)]
        # The first ones ask the lake for its permission.
        generate(node.url, lake.account, puts[:CLIENTS], folder / "first", connections=1, seconds=60, once=True)
        before = cpu_seconds([node.pid])
        load = generate(
            node.url, lake.account, puts[CLIENTS:], folder / "puts", connections=CLIENTS, seconds=300, once=True
        )
        if load.bad_statuses or load.broken or load.requests != writes:
            raise RuntimeError(f"{side}: {load}")
        cpu = (cpu_seconds([node.pid]) - before) / writes * 1e6
        return Sample(load.requests / load.seconds, load.p50_us / 1e3, load.p99_us / 1e3, cpu)


def three_members(folder: Path, stack: ExitStack) -> str:
    """Starts an S3 store and an etcd of three members. Returns their description."""
    store = stack.enter_context(LAKES["versitygw"](folder / "store", ()))
    make_bucket(store, TIER_BUCKET)
    etcd = stack.enter_context(Etcd(folder / "etcd", MEMBERS, quota_bytes=8 << 30))
    return at_etcd(store, etcd.endpoints)


def fsync_ms(folder: Path) -> float:
    """Returns the median time of an append of 4 KiB with its fsync."""
    taken = []
    with (folder / "fsync").open("wb", buffering=0) as file:
        for _ in range(200):
            began = time.perf_counter()
            file.write(bytes(SIZE))
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1e3


def report(kind: str, sides: list[Side], samples: list[list[Sample]]) -> None:
    """Prints each figure of each build, and its ratios to the first build."""
    figures: dict[str, Callable[[Sample], float]] = {
        "writes a second": lambda one: one.a_second,
        "p50 ms": lambda one: one.p50_ms,
        "p99 ms": lambda one: one.p99_ms,
        "CPU of the node a write, µs": lambda one: one.cpu_us,
    }
    for measure, figure in figures.items():
        values = [[figure(one) for one in own] for own in samples]
        for side, own in zip(sides, values, strict=True):
            ratios = Spread.of([mine / first for mine, first in zip(own, values[0], strict=True)])
            print(f"{kind} | {measure} | {side} | {statistics.median(own):.2f} | {ratios}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
