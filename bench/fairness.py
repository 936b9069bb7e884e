"""One client on two connections, alone and beside another on thousands: `python -m bench.fairness --shoal BIN`.

For each freshness, in each round: the light identity alone, then the same while the hog keeps its connections busy.

In a data center, clients and lake have machines of their own. Here the node has processor 0 for itself, alone
and beside the hog alike; the clients and the lake share processor 1, where the light client has real-time
priority. So the figures show how the node shares out itself and the lake, and not how the kernel shares out
one processor between the node and its clients. Setting the priority needs `CAP_SYS_NICE`; with `--unpinned`
everything shares everything, and the kernel's slices of some milliseconds are a part of each figure.

wrk corrects its percentiles for the requests that it could not send while it waited: one stall of 40 ms counts as
many slow requests.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from real.lakes import Account
from real.node import Node
from real.processes import Process, answers, free_port
from real.wire import send

from .load import Get, Load, generate

# The account of the embedded lake of `shoal dev`.
LAKE = Account("shoaldev", "shoaldev-secret")
BUCKET = "fairness"
LIGHT, HOG = Account("light", "light-secret"), Account("hog", "hog-secret")
OBJECTS, OBJECT_BYTES = 64, 4096
IDENTITY = '\n[[identity]]\naccess_key = "{0.access_key}"\nsecret_key = "{0.secret_key}"\n'
# Where processes run. Neither hog nor lake has real-time priority: the kernel stops processes that have it
# for 50 ms in each second in which they leave nothing to others.
NODE = ("taskset", "--cpu-list", "0")
OTHERS = ("taskset", "--cpu-list", "1")
LIGHT_CLIENT = (*OTHERS, "chrt", "--rr", "30")
# The hog's connections are all open and busy before the light one begins.
AHEAD_S, AFTER_S = 4, 1


@dataclass(frozen=True)
class Round:
    """The load of the light client alone and beside the hog, and the load of the hog meanwhile."""

    alone: Load
    beside: Load
    hog: Load

    @property
    def rate(self) -> float:
        """Requests a second beside the hog over those alone."""
        return rate(self.beside) / rate(self.alone)

    @property
    def p99(self) -> float:
        """Returns the ratio of the 99th percentile beside the hog to the one alone."""
        return self.beside.p99_us / self.alone.p99_us


def main() -> None:
    """Parses, measures, prints."""
    parser = argparse.ArgumentParser(prog="python -m bench.fairness", description=__doc__)
    parser.add_argument("--shoal", type=Path, required=True, help="the binary, built with --release")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (5)")
    parser.add_argument("--seconds", type=float, default=4, help="length of one run (4)")
    parser.add_argument("--connections", type=int, default=4000, help="connections of the hog (4000)")
    parser.add_argument("--freshness", nargs="*", default=["revalidate", "immutable"])
    parser.add_argument("--unpinned", action="store_true", help="all processes share all processors")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="shoal-fairness-") as scratch:
        lake = Lake(arguments.shoal, Path(scratch), placed(arguments, OTHERS))
        try:
            for freshness in arguments.freshness:
                measure(arguments, lake, Path(scratch), freshness)
        finally:
            lake.stop()


class Lake:
    """The embedded lake; the node that comes with it is not asked."""

    def __init__(self, binary: Path, folder: Path, within: tuple[str, ...]) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = [*within, binary, "dev", "--nodes", "1", "--lake-port", str(port)]
        ports = [part for kind in ("s3", "admin", "peer") for part in (f"--{kind}-port", "0")]
        self._process = Process([*command, *ports, "--dir", folder / "lake"], folder / "lake.log")
        self._process.wait_until(lambda: answers(port), 30)
        for method, key in (("PUT", ""), *(("PUT", name(number)) for number in range(OBJECTS))):
            body = bytes(OBJECT_BYTES) if key else b""
            answer = send(self.url, LAKE, method, BUCKET, key, body=body)
            if answer.status != 200:
                raise RuntimeError(f"the lake answers {answer.status} to {method} {key}")

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def stop(self) -> None:
        """Ends it."""
        self._process.stop()


def name(number: int) -> str:
    """Returns an object's key."""
    return f"object-{number}"


def measure(arguments: argparse.Namespace, lake: Lake, scratch: Path, freshness: str) -> None:
    """Measures all rounds at one freshness."""
    node = Node(
        arguments.shoal,
        scratch / freshness,
        lake.url,
        [],
        freshness=freshness,
        capacity="1GiB",
        environment={"SHOAL_LAKE_ACCESS_KEY": LAKE.access_key, "SHOAL_LAKE_SECRET_KEY": LAKE.secret_key},
        tables=IDENTITY.format(LIGHT) + IDENTITY.format(HOG),
        within=placed(arguments, NODE),
    )
    gets = [Get(BUCKET, name(number)) for number in range(OBJECTS)]

    def load(account: Account, connections: int, seconds: float) -> Load:
        file = scratch / f"{account.access_key}-requests"
        within = placed(arguments, LIGHT_CLIENT if account is LIGHT else OTHERS)
        return generate(node.url, account, gets, file, connections=connections, seconds=seconds, within=within)

    def beside_hog() -> tuple[Load, Load]:
        heard: list[Load] = []
        hog_s = AHEAD_S + arguments.seconds + AFTER_S
        hog = threading.Thread(target=lambda: heard.append(load(HOG, arguments.connections, hog_s)))
        hog.start()
        time.sleep(AHEAD_S)
        light = load(LIGHT, 2, arguments.seconds)
        hog.join()
        return light, heard[0]

    with node:
        load(LIGHT, 2, 2)
        load(HOG, 2, 1)
        rounds = []
        for number in range(arguments.rounds):
            alone = load(LIGHT, 2, arguments.seconds)
            rounds.append(Round(alone, *beside_hog()))
            print(f"{freshness} {number + 1}: {told(rounds[-1])}", flush=True)
        rates = statistics.median(one.rate for one in rounds)
        p99s = statistics.median(one.p99 for one in rounds)
        print(f"{freshness}: beside the hog {rates:.2f} of the rate, {p99s:.2f} times the p99 (medians)", flush=True)


def placed(arguments: argparse.Namespace, within: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the prefix of a command that runs it on its processor."""
    return () if arguments.unpinned else within


def rate(load: Load) -> float:
    """Returns good answers per second."""
    return (load.requests - load.bad_statuses) / load.seconds


def told(one: Round) -> str:
    """Describes one round in a line."""

    def shown(load: Load) -> str:
        refused = f", {load.bad_statuses} refused" if load.bad_statuses else ""
        return f"{rate(load):.0f}/s p50 {load.p50_us / 1000:.1f} ms p99 {load.p99_us / 1000:.1f} ms{refused}"

    return f"alone {shown(one.alone)}; beside {shown(one.beside)}; hog {shown(one.hog)}"


if __name__ == "__main__":
    main()
