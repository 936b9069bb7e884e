"""Tiers on real stores: `python -m tiers --shoal BIN --store-tests BIN [--engine NAME] [--seed N]`.

Each engine runs the suite of stores of `crates/shoal-writeback`. An engine with disks is also the store of three
nodes: it loses two of six disks while clients write, then a third, and gets them back. The lake is versitygw.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from real import etcd
from real.cluster import Cluster
from real.lakes import LAKES, TIER_STORES, Lake, LakeUnavailable, TierStore, versitygw
from real.processes import await_that
from real.report import Difference, Report
from real.scratch import scratch
from real.wire import send

from .disks import Story

ENGINES = ("versitygw", "minio", "ceph")
_SUITE = "tier::tests::s3::"
_SUITE_TIMEOUT_S = 600


def main() -> int:
    """Tests every engine in turn."""
    arguments = _parse()
    engines = arguments.engine or ENGINES
    report, skipped = Report(), 0
    with scratch("shoal-tiers-", arguments.keep) as folder:
        for name in engines:
            try:
                _prove(report, name, folder / name, arguments)
            except (LakeUnavailable, etcd.EtcdUnavailable) as reason:
                print(f"skipped: {name}: {reason}", flush=True)
                skipped += 1
    # The checks that a skipped engine passed before it was skipped count as well.
    return report.finish() if skipped < len(engines) or report.has_failed else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests/tiers/run.sh", description=__doc__)
    parser.add_argument("--engine", choices=ENGINES, action="append", help="only this one; may be repeated")
    parser.add_argument("--shoal", type=Path, required=True, help="the binary")
    parser.add_argument("--store-tests", type=Path, required=True, help="the test program of crates/shoal-writeback")
    parser.add_argument("--seed", type=int, default=1, help="of all that is left to chance (1)")
    parser.add_argument("--keep", action="store_true", help="keep logs and data")
    return parser.parse_args()


def _prove(report: Report, name: str, folder: Path, arguments: argparse.Namespace) -> None:
    with ExitStack() as running:
        store = running.enter_context(TIER_STORES[name](folder / "store")) if name in TIER_STORES else None
        lake = store.lake if store else running.enter_context(LAKES[name](folder / "store", ()))
        print(f"-- {name} {lake.version}", flush=True)
        with report.check(name, "passes the suite of stores"):
            print(f"   {_conforms(arguments.store_tests, lake)}", flush=True)
        if store:
            _lose_disks(report, name, store, folder, arguments)


def _conforms(tests: Path, store: Lake) -> str:
    """Runs the tests of the store in a bucket against a real one; returns their counts."""
    account = store.account
    # A store that has just begun says for a moment that it is not ready.
    await_that("the store takes a bucket", lambda: send(store.url, account, "PUT", "ready").status == 200)
    environment = {
        **os.environ,
        "SHOAL_TEST_S3": store.url,
        "SHOAL_TEST_S3_KEYS": f"{account.access_key}:{account.secret_key}",
    }
    done = subprocess.run(
        [tests.resolve(), _SUITE],
        capture_output=True,
        text=True,
        env=environment,
        timeout=_SUITE_TIMEOUT_S,
        check=False,
    )
    counts = re.search(r"^test result: (?:ok|FAILED)\. (\d+) passed; (\d+) failed", done.stdout, re.MULTILINE)
    if done.returncode != 0 or counts is None or int(counts[1]) == 0:
        raise Difference((done.stdout + done.stderr)[-4000:])
    return f"{counts[1]} tests passed"


def _lose_disks(report: Report, name: str, store: TierStore, folder: Path, arguments: argparse.Namespace) -> None:
    binary = arguments.shoal.resolve()
    with (
        versitygw.start(folder / "lake") as lake,
        Cluster(binary, folder, lake, [lake.account], store=store.lake) as cluster,
    ):
        for title, chapter in Story(binary, cluster, lake, store, arguments.seed).chapters():
            told = ""
            with report.check(name, title):
                told = chapter()
                print(f"   {told}", flush=True)
            if not told:
                for node in cluster.nodes:
                    print(f"the end of the log of {node.name}:\n{node.log.read_text(errors='replace')[-1500:]}")
                return
        with report.check(name, "no node logs an error"):
            if errors := cluster.errors():
                raise Difference("\n".join(errors[:5]))


if __name__ == "__main__":
    sys.exit(main())
