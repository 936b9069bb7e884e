"""Runs the comparison: `python -m real --shoal BIN [--lake NAME] [--write-back] [--quick]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from . import back, etcd, half_bodies, readiness
from .clients import CLIENTS
from .comparison import Comparison
from .lakes import LAKES, Lake, LakeUnavailable
from .node import Node
from .parity import Parity
from .report import Difference, Report
from .scratch import scratch

# MinIO takes minutes to build; name it, or `all`, to have it.
DEFAULT_LAKES = ("versitygw", "ceph")
QUICK_CHECKS = 2


def main() -> int:
    """Parses, runs, counts."""
    arguments = parse()
    report = Report()
    try:
        if arguments.write_back:
            etcd.program()
        with scratch("shoal-real-", arguments.keep) as folder:
            for name in arguments.lakes:
                try:
                    with LAKES[name](folder / name, ()) as lake:
                        prove(report, lake, folder, arguments)
                except LakeUnavailable as reason:
                    report.skip(name, str(reason))
        return report.finish()
    except etcd.EtcdUnavailable as reason:
        print(f"skipped: {reason}")
        return 0


def parse() -> argparse.Namespace:
    """Returns the command line."""
    parser = argparse.ArgumentParser(prog="tests/real/run.sh", description=__doc__)
    parser.add_argument("--lake", choices=(*LAKES, "all"), help=f"default: {' and '.join(DEFAULT_LAKES)}")
    parser.add_argument("--client", choices=(*CLIENTS, "parity"), help="only this client")
    parser.add_argument("--quick", action="store_true", help="a few checks of each kind")
    parser.add_argument("--shoal", type=Path, help="the binary; without it the lake is compared with itself")
    parser.add_argument(
        "--write-back", action="store_true", help="three nodes that acknowledge before the lake has what is written"
    )
    parser.add_argument("--keep", action="store_true", help="keep logs and data")
    arguments = parser.parse_args()
    arguments.clients = [name for name in CLIENTS if arguments.client in (None, name)]
    if arguments.write_back and arguments.shoal is None:
        parser.error("--write-back needs --shoal")
    if arguments.lake is None:
        arguments.lakes = DEFAULT_LAKES
    else:
        arguments.lakes = tuple(LAKES) if arguments.lake == "all" else (arguments.lake,)
    return arguments


def prove(report: Report, lake: Lake, folder: Path, arguments: argparse.Namespace) -> None:
    """Runs all clients and the raw comparison on one lake."""
    print(f"-- {lake.name} {lake.version}", flush=True)
    if arguments.write_back:
        back.prove(report, lake, arguments.shoal.resolve(), folder, arguments.clients, most(arguments))
        return
    if arguments.shoal is None:
        compare(report, lake, lake.url, lambda: None, folder, arguments)
        return
    readiness.prove(report, lake, arguments.shoal.resolve(), folder)
    half_bodies.prove(report, lake, arguments.shoal.resolve(), folder)
    with Node(arguments.shoal.resolve(), folder / f"{lake.name}-node", lake.url, [lake.account]) as node:
        compare(report, lake, node.url, node.restart_cold, folder, arguments)
        with report.check(lake.name, "node", "logs no error"):
            errors = [line for line in node.log.read_text().splitlines() if "ERROR" in line or "panicked" in line]
            if errors:
                raise Difference("\n".join(errors[:5]))


def compare(
    report: Report, lake: Lake, node_url: str, forget: Callable[[], None], folder: Path, arguments: argparse.Namespace
) -> None:
    """Clients and parity; `node_url` is the lake's own when there is no node."""
    for name in arguments.clients:
        comparison = Comparison(report, lake, name, folder / f"{lake.name}-clients")
        comparison.run(CLIENTS[name][: most(arguments)], "node", node_url, lake.url)
    if arguments.client in (None, "parity"):
        Parity(report, lake.name, lake.url, node_url, lake.account, forget).run(arguments.quick)


def most(arguments: argparse.Namespace) -> int | None:
    """Returns the greatest number of checks of each client; None for all."""
    return QUICK_CHECKS if arguments.quick else None


if __name__ == "__main__":
    sys.exit(main())
