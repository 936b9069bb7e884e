"""Runs the comparison: `python -m real --shoal BIN [--lake NAME] [--quick]`."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from .clients import CLIENTS, Check
from .lakes import LAKES, Lake, LakeUnavailable
from .node import Node
from .parity import Parity
from .report import Difference, Report, Skip, first_differences
from .store import Store
from .wire import send

# MinIO takes minutes to build; name it, or `all`, to have it.
DEFAULT_LAKES = ("versitygw", "ceph")
QUICK_CHECKS = 2


def main() -> int:
    """Parses, runs, counts."""
    arguments = parse()
    # A plain SIGTERM would leave lakes and nodes behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    report = Report()
    folder = Path(tempfile.mkdtemp(prefix="shoal-real-"))
    try:
        for name in arguments.lakes:
            try:
                lake = LAKES[name](folder / name, ())
            except LakeUnavailable as reason:
                report.skip(name, str(reason))
                continue
            with lake:
                prove(report, lake, folder, arguments)
        return report.finish()
    finally:
        if arguments.keep:
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="tests/real/run.sh", description=__doc__)
    parser.add_argument("--lake", choices=(*LAKES, "all"), help=f"default: {' and '.join(DEFAULT_LAKES)}")
    parser.add_argument("--client", choices=(*CLIENTS, "parity"), help="only this client")
    parser.add_argument("--quick", action="store_true", help="a few checks of each kind")
    parser.add_argument("--shoal", type=Path, help="the binary; without it the lake is compared with itself")
    parser.add_argument("--keep", action="store_true", help="keep logs and data")
    arguments = parser.parse_args()
    if arguments.lake is None:
        arguments.lakes = DEFAULT_LAKES
    else:
        arguments.lakes = tuple(LAKES) if arguments.lake == "all" else (arguments.lake,)
    return arguments


def prove(report: Report, lake: Lake, folder: Path, arguments: argparse.Namespace) -> None:
    """All clients and the raw comparison on one lake."""
    print(f"-- {lake.name} {lake.version}", flush=True)
    if arguments.shoal is None:
        compare(report, lake, lake.url, lambda: None, folder, arguments)
        return
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
    for name, checks in CLIENTS.items():
        if arguments.client not in (None, name):
            continue
        direct, through = (
            prepare(
                Store(
                    url,
                    lake.url,
                    lake.account,
                    f"{name}-{side}",
                    folder / f"{lake.name}-clients" / f"{name}-{side}",
                    lake.knows_checksums,
                )
            )
            for side, url in (("lake", lake.url), ("node", node_url))
        )
        for check in checks[:QUICK_CHECKS] if arguments.quick else checks:
            with report.check(lake.name, name, check.__name__.replace("_", " ")):
                compare_client(check, direct, through)
    if arguments.client in (None, "parity"):
        Parity(report, lake.name, lake.url, node_url, lake.account, forget).run(arguments.quick)


def prepare(store: Store) -> Store:
    """Makes the bucket, past the node, and the folder for local files."""
    store.scratch.mkdir(parents=True)
    answer = send(store.lake_url, store.account, "PUT", store.bucket)
    if answer.status != 200:
        raise RuntimeError(f"the lake refused a bucket: {answer.status} {answer.body!r}")
    return store


def compare_client(check: Check, direct: Store, through: Store) -> None:
    """One check at the lake, then through the node; what they saw must be equal."""
    try:
        expected = check(direct)
    except Exception as error:
        raise Skip(f"the lake itself: {type(error).__name__}: {error}") from error
    found = check(through)
    differences = first_differences(expected, found)
    if differences:
        raise Difference("; ".join(differences))


if __name__ == "__main__":
    sys.exit(main())
