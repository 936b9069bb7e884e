"""Runs the bench: `python -m bench --shoal BIN`; see `bench/run.sh`."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path

from real.lakes import LAKES, Lake, LakeUnavailable
from real.node import Node
from real.processes import run
from real.scratch import scratch

from . import before, hot, nginx, peers, varnish
from .bed import GIB, MIB, Bed, Server
from .cold import Cold
from .counting import CountingRelay
from .process_facts import MemoryWatch, Peak
from .report import Page
from .write import Write

RESULTS = Path(__file__).with_name("results")
# One server thread on each side; the client has the other core.
ONE_THREAD = {"TOKIO_WORKER_THREADS": "1"}
CAPACITY = "20GiB"


def main() -> int:
    """Parses, measures, writes the page."""
    arguments = parse()
    try:
        with scratch("shoal-bench-") as folder, LAKES[arguments.lake](folder / "lake", ()) as lake:
            page = measure(arguments, lake, folder)
        if not arguments.quick:
            print(f"appended to {page.append_to(arguments.results)}")
        return 0
    except LakeUnavailable as reason:
        print(f"no bench without a lake: {reason}", file=sys.stderr)
        return 1


def parse() -> argparse.Namespace:
    """Returns the command line."""
    parser = argparse.ArgumentParser(prog="bench/run.sh", description=__doc__)
    parser.add_argument("--shoal", type=Path, required=True, help="the binary, built with --release")
    parser.add_argument(
        "--lake", choices=tuple(LAKES), default="versitygw", help="the lake of the cold cases (versitygw)"
    )
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds (7)")
    parser.add_argument("--seconds", type=float, default=3, help="length of one hot run (3)")
    parser.add_argument("--only", choices=("hot", "cold", "write", "peers", "before"), help="one part")
    parser.add_argument("--before", type=Path, help="an older binary, to which this one is compared")
    parser.add_argument("--quick", action="store_true", help="two short rounds, nothing written: does it work?")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the dated pages")
    arguments = parser.parse_args()
    if arguments.only == "before" and not arguments.before:
        parser.error("--only before: name the older binary with --before")
    if arguments.quick:
        arguments.rounds, arguments.seconds = 2, 1
    return arguments


def measure(arguments: argparse.Namespace, lake: Lake, folder: Path) -> Page:
    """Measures every part against one lake."""
    binary = arguments.shoal.resolve()
    bed = Bed(lake, folder / "www", folder / "requests")
    bed.create_bucket()
    page = Page(
        f"{run([binary, '--version']).strip()}, nginx {nginx.version()}, Varnish {varnish.version()}, "
        f"wrk {nginx.wrk_version()}, "
        f"{lake.name} {lake.version}",
        f"{arguments.rounds} interleaved rounds, hot runs of {arguments.seconds:g} s, one client thread; "
        "node: SigV4 verified, freshness `immutable`, blocks of 4 MiB, one worker thread; "
        "nginx: sendfile, one worker, the better `tcp_nopush`.",
    )

    def node(name: str, lake_url: str, build: Path = binary) -> Node:
        return Node(
            build,
            folder / name,
            lake_url,
            [lake.account],
            freshness="immutable",
            capacity=CAPACITY,
            environment=ONE_THREAD,
        )

    if arguments.only in (None, "hot"):
        with node("hot-node", lake.url) as hot_node:
            peak = run_hot(arguments, bed, page, hot_node, folder)
        page.note(f"Memory over all hot cases: {peak}.")
    if arguments.only in (None, "cold"):
        with (
            CountingRelay(lake.url) as counting,
            nginx.Nginx.relaying(folder / "relay", lake.url) as relay,
            node("cold-node", lake.url) as plain,
            node("counted-node", counting.url) as counted,
        ):
            large = 64 * MIB if arguments.quick else GIB
            peak = Cold(bed, page, plain, counted, counting, relay, arguments.rounds).run(large)
        page.note(f"Memory over all cold cases: {peak}.")
    if arguments.only in (None, "write"):
        with (
            CountingRelay(lake.url) as relay,
            node("writing-node", lake.url) as plain,
            node("counted-writing-node", relay.url) as counted,
        ):
            Write(bed, page, plain, counted, relay, arguments.rounds).run()
    if arguments.only in (None, "before") and arguments.before:
        with (
            node("this-node", lake.url) as this,
            node("earlier-node", lake.url, arguments.before.resolve()) as earlier,
        ):
            before.run(bed, page, {"this": this, "before": earlier}, arguments.rounds, arguments.seconds)
    if arguments.only in (None, "peers"):
        binaries = peers.Binaries(binary, arguments.before and arguments.before.resolve())
        peers.run(bed, page, binaries, folder, arguments.rounds, arguments.seconds, ONE_THREAD)
    return page


def run_hot(arguments: argparse.Namespace, bed: Bed, page: Page, node: Node, folder: Path) -> Peak:
    """Measures the hot half; returns the node's memory peak."""
    cases = hot.cases(bed)
    with ExitStack() as stack:
        rivals = []
        for nopush in ("on", "off"):
            server = stack.enter_context(nginx.Nginx.serving(folder / f"nginx-{nopush}", bed.root, nopush))
            rivals.append(Server(f"nginx nopush {nopush}", server.url, server.pids))
        # Varnish is for small objects: its memory would not hold the large ones.
        memory = stack.enter_context(varnish.Varnish(folder / "varnish", rivals[0].url))
        beside = Server("Varnish", memory.url, memory.pids)
        ours = Server("node", node.url, lambda: [node.pid])
        with MemoryWatch(node.pid) as watch:
            for case in cases:
                among = hot.Servers(ours, rivals, [beside] if case.per_request else [])
                hot.measure(bed, page, case, among, arguments.rounds, arguments.seconds)
    return watch.peak


if __name__ == "__main__":
    sys.exit(main())
