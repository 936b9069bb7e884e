"""Runs `versitygw test full-flow` on versitygw and through a node. Tests that pass there must pass through the node.

`differs.txt` lists the tests that are known to differ, with reasons. A test that fails through the node and is not in
that file fails this run. A test in the file that passes also fails it, because the file is then no longer true. Tests
that fail by chance, at versitygw too, are in `UNSTEADY` and do not count.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from real.lakes import LAKES, Account, LakeUnavailable  # noqa: E402 - the path comes first
from real.lakes.versitygw import binary  # noqa: E402
from real.node import Node  # noqa: E402

DIFFERS = HERE / "differs.txt"
TIMEOUT_S = 1800
# It expects uploads of one key in the order in which they were made; versitygw lists those of one second by their
# random ids.
UNSTEADY = {"ListMultipartUploads_keyMarker_not_from_list"}
# `PASS Name` or `FAIL Name: reason`, between the codes of colours.
_OUTCOME = re.compile(r"^\W*(?:\[\d+m)?(PASS|FAIL)\s*(?:\x1b\[0m)?\s*(\w+)(?:: (.*))?$")


def run_tests(
    url: str, account: Account, log: Path, admin: Sequence[str | Path], group: Sequence[str]
) -> dict[str, str | None]:
    """Runs a group of tests at `url`. Returns the reason of each failure by test, None for a test that passed.

    It makes accounts by a program of its own name in the folder where it runs: there, that is the command `admin`.
    """
    folder = log.with_suffix("")
    folder.mkdir()
    stand_in = folder / "versitygw"
    stand_in.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, admin))} "$@"\n')
    stand_in.chmod(0o755)
    command = [binary(), "test", "--access", account.access_key, "--secret", account.secret_key, "--endpoint", url]
    with log.open("wb") as output:
        subprocess.run(
            [*command, *group],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # Versitygw takes a CA bundle named here for a setting of its own.
            env={"PATH": "/usr/bin:/bin", "AWS_EC2_METADATA_DISABLED": "true"},
            timeout=TIMEOUT_S,
            check=False,
        )
    outcomes: dict[str, str | None] = {}
    for line in log.read_text(errors="replace").splitlines():
        if found := _OUTCOME.match(line):
            word, test, reason = found.groups()
            # Some tests run twice; a test fails if one of its runs fails.
            outcomes[test] = outcomes.get(test) or (None if word == "PASS" else reason or "without a reason")
    return outcomes


def full_flow(url: str, account: Account, log: Path, admin: Sequence[str | Path]) -> dict[str, str | None]:
    """Runs the suite at `url`."""
    return run_tests(url, account, log, admin, ["full-flow", "--vs"])


def tried_again(
    outcomes: dict[str, str | None], url: str, account: Account, log: Path, admin: Sequence[str | Path]
) -> dict[str, str | None]:
    """Runs each unexpected failure again, alone: some tests expect an order of objects that were made in one moment."""
    known = known_differences()
    again = dict(outcomes)
    for test in [test for test, reason in outcomes.items() if reason is not None and test not in known | UNSTEADY]:
        alone = run_tests(url, account, log.with_name(f"{log.stem}-{test}.log"), admin, [test])
        if test in alone and alone[test] is None:
            again[test] = None
    return again


def known_differences() -> set[str]:
    """Returns the names in `differs.txt`, each of which stands before its reason."""
    lines = [line.partition(": ") for line in DIFFERS.read_text().splitlines() if line and not line.startswith("#")]
    without = [name for name, _, reason in lines if not reason]
    if without:
        raise ValueError(f"{DIFFERS.name} gives no reason for {', '.join(without)}")
    return {name for name, _, _ in lines}


def judge(lake: dict[str, str | None], node: dict[str, str | None]) -> int:
    """Prints each difference and returns how many are not expected."""
    passing = sorted(test for test, reason in lake.items() if reason is None and test not in UNSTEADY)
    known, surprises = known_differences(), 0
    for test in passing:
        reason = node.get(test, "it did not run")
        if reason is not None and test not in known:
            surprises += 1
            print(f"LOST {test}: {reason}")
        elif reason is None and test in known:
            surprises += 1
            print(f"PASSES {test}: take it out of {DIFFERS.name}")
    differing = sum(node.get(test, "") is not None for test in passing)
    print(f"{len(passing)} of {len(lake)} tests pass at versitygw, {len(passing) - differing} of them through the node")
    return surprises


def parse() -> argparse.Namespace:
    """Returns the command line."""
    parser = argparse.ArgumentParser(prog="tests/full-flow/run.sh", description=__doc__)
    parser.add_argument("--shoal", type=Path, required=True, help="the binary")
    parser.add_argument("--results", type=Path, help="keep logs in this folder")
    return parser.parse_args()


def at_the_lake(folder: Path, results: Path) -> dict[str, str | None]:
    """Runs the suite at a lake."""
    with LAKES["versitygw"](folder / "lake", ()) as lake:
        outcomes = full_flow(lake.url, lake.account, results / "lake.log", [binary()])
    if None not in outcomes.values():
        raise RuntimeError(f"no test passes at the lake:\n{(results / 'lake.log').read_text()[-2000:]}")
    return outcomes


def through_a_node(shoal: Path, folder: Path, results: Path) -> dict[str, str | None]:
    """Runs the suite through a node in front of another lake: some tests list all buckets that there are."""
    with (
        LAKES["versitygw"](folder / "lake-of-the-node", ()) as lake,
        Node(shoal, folder / "node", lake.url, [lake.account]) as node,
    ):
        admin = [sys.executable, HERE / "admin.py", binary(), node.configuration, str(node.pid), node.admin]
        try:
            log = results / "node.log"
            outcomes = full_flow(node.url, lake.account, log, admin)
            return tried_again(outcomes, node.url, lake.account, log, admin)
        finally:
            shutil.copy(node.log, results / "shoal.log")


def run_suites(shoal: Path, folder: Path, results: Path) -> int:
    """Runs both at the same time, as tests mostly wait, and returns how many differences are not expected."""
    binary()
    with ThreadPoolExecutor(max_workers=2) as pool:
        lake = pool.submit(at_the_lake, folder, results)
        node = pool.submit(through_a_node, shoal, folder, results)
        return judge(lake.result(), node.result())


def main() -> int:
    """Exits with 1 at a difference that is not expected."""
    arguments = parse()
    try:
        with tempfile.TemporaryDirectory(prefix="shoal-full-flow-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            results = (arguments.results or folder / "results").resolve()
            results.mkdir(parents=True, exist_ok=True)
            return int(run_suites(arguments.shoal.resolve(), folder, results) > 0)
    except LakeUnavailable as reason:
        print(f"skipped: {reason}")
        return 0


if __name__ == "__main__":
    sys.exit(main())
