"""Clients beside transfers that no client waits for, on one metered link: `bench/link.sh --shoal BIN`.

A node and its clients are in network namespaces of their own; the link between node and lake is shaped by `tbf`. In
each round and part: clients alone; clients while the lake has as much other work, which does not come over the link;
clients beside background transfers on a metered link; the same on a link without `[lake] bandwidth`. Each run has a
node with an empty store. All processes share the processors of one machine, so the second of these is what the third
is compared with: the difference is the link's.

    down   cold reads beside `shoal prefetch`, if the binary has it
    up     writes to the lake beside the cleaner, which brings dirty objects of a tier there

Clients arrive by chance at a fixed rate (Poisson), and a request's time counts from its arrival. What background
transfers use is what the link carried beside the bytes of the clients, over what these left.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from net.fabric import LAKE_ADDRESS, Fabric, Rates, admin_address, node_address, within
from net.objects import contents
from real.lakes import Lake, minio, versitygw
from real.node import Node
from real.processes import Process, await_that
from real.wire import send

from .link_client import Arrivals, Steady, Times

BUCKET = "link"
BACKGROUND = "background/"
KIB, MIB = 1 << 10, 1 << 20
LAKES = {"versitygw": versitygw.start, "minio": minio.start}
BACKGROUND_BYTES = 4 * MIB
# Background transfers have the link to themselves for so long before clients come.
AHEAD_S = 2.0
VARIANTS = ("alone", "elsewhere", "metered", "unmetered")
TIER = """
[[tier]]
name = "near"
folder = "{folder}"
capacity = "20GiB"

[write]
age = "1h"

[[write.rule]]
prefix = "s3://{bucket}/{background}"
mode = "back"
"""


@dataclass(frozen=True)
class Run:
    """Clients for some seconds."""

    times: Times
    """Bytes that the link carried meanwhile, with all headers, and in which time."""
    link_bytes: int
    link_s: float

    def used_idle(self, capacity: float) -> float:
        """Returns the part of what clients left that background transfers used, on a link of so many bytes a second."""
        left = capacity * self.link_s - self.times.bytes
        return (self.link_bytes - self.times.bytes) / left


@dataclass(frozen=True)
class Part:
    """A direction, and the work in it."""

    name: str
    method: str
    link_bytes: Callable[[Fabric], int]
    """Prepares what background transfers move, and begins them."""
    begin: Callable[[Bench, Node], list[Process]]

    def prefix(self, number: int) -> str:
        """Returns what the names of clients' objects begin with in a round."""
        return f"client/{self.name}/{number}/"


class Bench:
    """The network, the lake, and the nodes that come and go."""

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self.arguments, self.folder = arguments, folder
        self.fabric = Fabric(1, Rates(lake=arguments.mbit))
        self.lake: Lake = LAKES[arguments.lake](folder / "lake", (), LAKE_ADDRESS)
        for process in self.lake.processes:
            os.setpriority(os.PRIO_PGRP, process.pid, -arguments.priority)
        self._runs = 0
        await_that("the lake has a bucket", lambda: send(self.lake.url, self.lake.account, "PUT", BUCKET).status == 200)

    @property
    def objects(self) -> int:
        """Returns the number of background objects: enough for a whole run."""
        seconds = AHEAD_S + self.arguments.seconds + 4
        return int(self.arguments.mbit * 125_000 * seconds / BACKGROUND_BYTES) + 1

    def put(self, url: str, keys: list[str], size: int) -> None:
        """Writes objects, to the lake or through a node."""

        def one(key: str) -> None:
            answer = send(url, self.lake.account, "PUT", BUCKET, key, body=contents(key, size))
            if answer.status != 200:
                raise RuntimeError(f"{url} answered {answer.status} to a PUT of {key}: {answer.body[:200]!r}")

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(one, keys))

    def background_keys(self) -> list[str]:
        """Returns the names of the background objects."""
        return [f"{BACKGROUND}{number}" for number in range(self.objects)]

    @contextmanager
    def node(self, metered: bool) -> Iterator[Node]:
        """Starts a node with an empty store and an empty tier."""
        self._runs += 1
        folder = self.folder / f"node-{self._runs}"
        bandwidth = int(self.arguments.mbit * self.arguments.percent / 100)
        tables = TIER.format(folder=folder / "tier", bucket=BUCKET, background=BACKGROUND)
        node = Node(
            self.arguments.shoal,
            folder,
            self.lake.url,
            [self.lake.account],
            freshness="immutable",
            block_size=f"{self.arguments.kib}KiB",
            address=node_address(1),
            admin_address=admin_address(1),
            tables=tables,
            environment={"SHOAL_LAKE_BANDWIDTH": f"{bandwidth}Mbit"} if metered else {},
            within=(*self.priority, *within("node-1")),
            s3_port=9000,
            admin_port=9100,
        )
        with node:
            yield node

    @property
    def priority(self) -> tuple[str, ...]:
        """Returns the prefix of commands that should not wait for other work of this machine."""
        return ("nice", "-n", str(-self.arguments.priority)) if self.arguments.priority else ()

    def clients(self, node: Node, part: Part, number: int) -> Run:
        """Lets clients come and go."""
        plan = Arrivals(
            url=node.url,
            access_key=self.lake.account.access_key,
            secret_key=self.lake.account.secret_key,
            method=part.method,
            bucket=BUCKET,
            prefix=part.prefix(number),
            size=self.arguments.kib * KIB,
            rate=self.arguments.rate,
            seconds=self.arguments.seconds,
            seed=number,
        )
        before, began = part.link_bytes(self.fabric), time.monotonic()
        command = [*self.priority, *within("client-1"), sys.executable, "-m", "bench.link_client"]
        done = subprocess.run(command, input=plan.to_json(), capture_output=True, text=True, check=False)
        after, ended = part.link_bytes(self.fabric), time.monotonic()
        if done.returncode:
            raise RuntimeError(done.stderr)
        return Run(Times.from_json(done.stdout), after - before, ended - began)

    def elsewhere(self, part: Part) -> Process:
        """Begins to use the lake past the link, at the rate that clients leave on it."""
        clients = self.arguments.rate * self.arguments.kib * KIB
        plan = Steady(
            url=self.lake.url,
            access_key=self.lake.account.access_key,
            secret_key=self.lake.account.secret_key,
            method=part.method,
            bucket=BUCKET,
            keys=self.background_keys(),
            size=BACKGROUND_BYTES,
            bytes_per_second=self.arguments.mbit * 125_000 * self.arguments.percent / 100 - clients,
        )
        path = self.folder / "elsewhere.json"
        path.write_text(plan.to_json())
        return Process([sys.executable, "-m", "bench.link_client", path], self.folder / "elsewhere.log")

    def shoal(self, *arguments: str | Path) -> Process:
        """Starts a command of the binary."""
        return Process([self.arguments.shoal, *arguments], self.folder / "commands.log")


def begin_prefetch(bench: Bench, node: Node) -> list[Process]:
    """Begins to prefetch all background objects."""
    order = ("prefetch", f"s3://{BUCKET}/{BACKGROUND}", "--node", node.admin, *node.shown, "--wait")
    return [bench.shoal(*order)]


def begin_cleaning(bench: Bench, node: Node) -> list[Process]:
    """Writes all background objects into the tier, and orders a flush of them."""
    bench.put(node.url, bench.background_keys(), BACKGROUND_BYTES)
    return [bench.shoal("flush", "--node", node.admin, *node.shown)]


PARTS = {
    "down": Part("down", "GET", Fabric.lake_bytes, begin_prefetch),
    "up": Part("up", "PUT", Fabric.lake_bytes_sent, begin_cleaning),
}


def main() -> None:
    """Parses, measures, prints."""
    parser = argparse.ArgumentParser(prog="bench/link.sh", description=__doc__)
    parser.add_argument("scratch", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--shoal", type=Path, required=True, help="the binary")
    parser.add_argument("--lake", choices=LAKES, default="versitygw")
    parser.add_argument("--part", choices=PARTS, help="only this direction")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (5)")
    parser.add_argument("--seconds", type=float, default=12, help="length of one run (12)")
    parser.add_argument("--mbit", type=int, default=200, help="rate of the link between node and lake (200)")
    parser.add_argument("--percent", type=int, default=96, help="[lake] bandwidth, in percent of that (96)")
    parser.add_argument("--kib", type=int, default=256, help="size of a client's object, and of a block (256)")
    parser.add_argument("--rate", type=float, default=24, help="clients a second (24)")
    parser.add_argument("--priority", type=int, default=0, help="how much nicer the kernel is to what is measured")
    parser.add_argument("--results", type=Path, help="file that gets the table")
    arguments = parser.parse_args()
    parts = [arguments.part] if arguments.part else list(PARTS)
    bench = Bench(arguments, arguments.scratch)
    try:
        lines = [line for name in parts for line in measure(bench, PARTS[name])]
    finally:
        bench.lake.stop()
    table = "\n".join([*HEAD, *lines])
    print(table)
    if arguments.results:
        arguments.results.write_text(table + "\n")


def measure(bench: Bench, part: Part) -> list[str]:
    """Runs all rounds of a part. Returns the rows of the table."""
    if part.name == "down":
        help_text = subprocess.run([bench.arguments.shoal, "--help"], capture_output=True, text=True, check=True).stdout
        if "prefetch" not in help_text:
            print("down: skipped, as the binary has no `prefetch`")
            return []
        bench.put(bench.lake.url, bench.background_keys(), BACKGROUND_BYTES)
    rounds: list[dict[str, Run]] = []
    for number in range(bench.arguments.rounds):
        rounds.append({variant: one_run(bench, part, variant, number) for variant in VARIANTS})
        for variant, run in rounds[-1].items():
            print(f"{part.name} {number + 1} {variant}: {told(run, bench)}", flush=True)
    return [row(part, variant, rounds, bench) for variant in VARIANTS]


def one_run(bench: Bench, part: Part, variant: str, number: int) -> Run:
    """Measures clients in one variant."""
    if part.method == "GET":
        count = int(bench.arguments.rate * bench.arguments.seconds * 2)
        bench.put(bench.lake.url, [f"{part.prefix(number)}{each}" for each in range(count)], bench.arguments.kib * KIB)
    with bench.node(metered=variant != "unmetered") as node:
        background: list[Process] = []
        if variant == "elsewhere":
            background = [bench.elsewhere(part)]
        elif variant != "alone":
            background = part.begin(bench, node)
        began = time.monotonic()
        try:
            for process in background:
                # A transfer that has ended by then would leave nothing to measure.
                process.wait_until(lambda: time.monotonic() > began + AHEAD_S, AHEAD_S + 1)
            time.sleep(max(0, began + AHEAD_S - time.monotonic()))
            return bench.clients(node, part, number)
        finally:
            for process in background:
                process.stop()


NAMES = {
    "alone": "none",
    "elsewhere": "past the link",
    "metered": "metered",
    "unmetered": "without `bandwidth`",
}
HEAD = [
    "| direction | background | clients' p50 | p99 | p50 to that past the link | p99 to that | used of the rest |",
    "|---|---|---|---|---|---|---|",
]


def row(part: Part, variant: str, rounds: list[dict[str, Run]], bench: Bench) -> str:
    """Returns the medians over all rounds. Ratios are taken within each round."""

    def median(of: Callable[[Run], float]) -> float:
        return statistics.median(of(each[variant]) for each in rounds)

    def ratio(of: Callable[[Run], float]) -> str:
        ratios = sorted(of(each[variant]) / of(each["elsewhere"]) for each in rounds)
        return f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"

    p50, p99 = (lambda run: run.times.percentile(50)), (lambda run: run.times.percentile(99))
    background = NAMES[variant]
    capacity = bench.arguments.mbit * 125_000
    used = "" if variant in ("alone", "elsewhere") else f"{median(lambda run: run.used_idle(capacity)):.0%}"
    cells = [f"{median(p50) * 1e3:.1f} ms", f"{median(p99) * 1e3:.1f} ms", ratio(p50), ratio(p99), used]
    return f"| {part.name} | {background} | {' | '.join(cells)} |"


def told(run: Run, bench: Bench) -> str:
    """Describes one run in a line."""
    p50, p99 = run.times.percentile(50) * 1e3, run.times.percentile(99) * 1e3
    used = run.used_idle(bench.arguments.mbit * 125_000)
    return f"{len(run.times.seconds)} requests, p50 {p50:.1f} ms, p99 {p99:.1f} ms; {used:.0%} of the rest used"


if __name__ == "__main__":
    main()
