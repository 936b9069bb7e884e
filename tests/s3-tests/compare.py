"""Runs `ceph/s3-tests` on a lake and through a node: what passes on the lake must pass through the node.

Three passes go through the node: its store empty, then twice with every read preceded by a read of the whole object.
A test that fails in one of them is tried again alone, at the node and at the lake, before it counts.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from real.lakes import LAKES, LakeUnavailable, cache_dir  # noqa: E402 - the path comes first
from real.node import Node  # noqa: E402
from real.processes import run  # noqa: E402
from users import USERS, write_configuration  # noqa: E402

SUITE_URL = "https://github.com/ceph/s3-tests.git"
SUITE_COMMIT = "8f0ae7b404a3a2fcf7038bf1e6bf29544fe9b6a3"
FILES = ("s3tests/functional/test_s3.py", "s3tests/functional/test_headers.py")

# Left out: what needs minutes of waiting for a lake's background work, services that are not S3, accounts that are made
# while the test runs (a node knows its identities from its configuration), and what no gateway of ours can do.
LEFT_OUT = (
    *("lifecycle_expiration", "lifecycle_transition", "cloud_transition", "cloud_restore"),
    *("bucket_logging", "bucket_logging_cleanup", "sns", "s3select"),
    *("iam_account", "iam_cross_account", "test_of_sts", "webidentity_test"),
    "fails_on_rgw",
)
# Aborts radosgw 16.2.15, and with it every test after it.
DESELECTED = ("s3tests/functional/test_s3.py::test_upload_part_copy_percent_encoded_key",)
# At versitygw a bucket's policy binds its owner, too: nobody can clear the bucket, and every test after it fails.
LEFT_OUT_AT = {"versitygw": ("bucket_policy",)}
# Some tests sign with version 2, which a node lets in only when told to.
ENVIRONMENT = {"SHOAL_S3_SIGNATURE_V2": "true"}
TEST_TIMEOUT_S = 120
PASS_TIMEOUT_S = 3600


@dataclass(frozen=True)
class Suite:
    """A checkout of s3-tests and one store that it is run against."""

    checkout: Path
    folder: Path
    name: str
    url: str

    def run(self, tests: Sequence[str], *, warm: bool = False, label: str) -> dict[str, str]:
        """Runs tests (all of the selection when none are named) and returns `passed`, `failed` or `skipped` by test."""
        configuration = self.folder / f"{self.name}.conf"
        write_configuration(configuration, self.url)
        results = self.folder / f"{self.name}-{label}.xml"
        wanted = self.folder / f"{self.name}-{label}.txt"
        wanted.write_text("\n".join(tests or FILES) + "\n")
        plugins = ("-p", "warm") if warm else ()
        left_out = " or ".join((*LEFT_OUT, *LEFT_OUT_AT.get(self.name, ())))
        selection = ("-m", f"not ({left_out})", *(f"--deselect={test}" for test in DESELECTED))
        environment = {
            **os.environ,
            "S3TEST_CONF": str(configuration),
            "PYTHONPATH": str(HERE),
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        command = [
            *(sys.executable, "-m", "pytest", "--quiet", "--tb=short", "-p", "no:cacheprovider", *plugins, *selection),
            *(f"--timeout={TEST_TIMEOUT_S}", f"--junit-xml={results}", f"@{wanted}"),
        ]
        with (self.folder / f"{self.name}-{label}.log").open("wb") as log:
            subprocess.run(
                command,
                cwd=self.checkout,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=PASS_TIMEOUT_S,
                check=False,
            )
        return read_results(results)


def read_results(path: Path) -> dict[str, str]:
    """Outcomes from a JUnit file, by pytest's name of the test."""
    outcomes: dict[str, str] = {}
    for case in ElementTree.parse(path).iter("testcase"):
        test = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
        kinds = {child.tag for child in case}
        # A failed clean-up follows the test as a case of its own; the test has failed then, too.
        if kinds & {"failure", "error"} or outcomes.get(test) == "failed":
            outcomes[test] = "failed"
        else:
            outcomes[test] = "skipped" if "skipped" in kinds else "passed"
    return outcomes


def passing(outcomes: dict[str, str]) -> list[str]:
    """The tests that passed, in order of name."""
    return sorted(test for test, outcome in outcomes.items() if outcome == "passed")


def compare(lake: Suite, node: Suite, baseline: Sequence[str], forget: Callable[[], None]) -> int:
    """The three passes through the node; returns how many tests were lost."""
    lost: dict[str, list[str]] = {}
    for label, warm in (("cold", False), ("warm", True), ("warm-again", True)):
        if not warm:
            forget()
        started = time.monotonic()
        outcomes = node.run(baseline, warm=warm, label=label)
        print_counts(f"node, {label}", outcomes, time.monotonic() - started)
        for test in baseline:
            if outcomes.get(test) != "passed" and fails_again(lake, node, test, warm):
                lost.setdefault(test, []).append(label)
    for test, labels in sorted(lost.items()):
        print(f"LOST {test} ({', '.join(labels)})")
    print(f"{len(baseline)} tests pass on the lake, {len(lost)} of them fail through the node")
    return len(lost)


def fails_again(lake: Suite, node: Suite, test: str, warm: bool) -> bool:
    """Whether a test that failed in a pass fails alone, too, while the lake still passes it."""
    if node.run([test], warm=warm, label="alone").get(test) == "passed":
        print(f"flaky: {test}")
        return False
    if lake.run([test], label="alone").get(test) != "passed":
        print(f"flaky at the lake: {test}")
        return False
    return True


def print_counts(label: str, outcomes: dict[str, str], seconds: float) -> None:
    """One line a pass."""
    counts = {kind: list(outcomes.values()).count(kind) for kind in ("passed", "failed", "skipped")}
    print(
        f"{label}: " + ", ".join(f"{count} {kind}" for kind, count in counts.items()) + f" in {seconds:.0f} s",
        flush=True,
    )


def baseline_of(lake: Suite, path: Path) -> list[str]:
    """The tests that pass on the lake: from the file of an earlier run, else those that pass twice in a row."""
    if path.exists():
        return [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    started = time.monotonic()
    first = lake.run([], label="direct")
    print_counts("lake", first, time.monotonic() - started)
    started = time.monotonic()
    second = lake.run(passing(first), label="direct-again")
    print_counts("lake, again", second, time.monotonic() - started)
    stable = passing(second)
    for test in sorted({*passing(first)} - {*stable}):
        print(f"flaky at the lake: {test}")
    path.parent.mkdir(parents=True, exist_ok=True)
    header = f"# Tests of ceph/s3-tests {SUITE_COMMIT[:12]} that pass on {lake.name} directly, twice in a row.\n"
    path.write_text(header + "\n".join(stable) + "\n")
    return stable


def checkout_suite() -> Path:
    """The suite at the commit we compare with, fetched once into the cache folder."""
    folder = cache_dir() / f"s3-tests-{SUITE_COMMIT[:12]}"
    if not folder.exists():
        partial = folder.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        run(["git", "clone", "--quiet", SUITE_URL, partial])
        run(["git", "-C", partial, "checkout", "--quiet", SUITE_COMMIT])
        partial.rename(folder)
    return folder


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="tests/s3-tests/run.sh", description=__doc__)
    parser.add_argument("--s3-tests", type=Path, help="a checkout of ceph/s3-tests; without it one is fetched")
    parser.add_argument("--lake", choices=("ceph", "versitygw"), default="ceph", help="the lake to start (ceph)")
    parser.add_argument("--shoal", type=Path, help="the binary; without it only the lake is tested")
    parser.add_argument("--lake-url", help="a lake that runs already, with the accounts of users.py; needs --node-url")
    parser.add_argument("--node-url", help="a node in front of it that runs already")
    parser.add_argument(
        "--baseline",
        type=Path,
        help="the tests that pass on the lake (passing/<lake>.txt); written after two passes when it does not exist",
    )
    parser.add_argument("--only", help="only the tests of the baseline whose name contains this")
    parser.add_argument("--results", type=Path, help="keep logs and results in this folder")
    arguments = parser.parse_args()
    if (arguments.lake_url is None) != (arguments.node_url is None):
        parser.error("--lake-url and --node-url go together")
    arguments.baseline = arguments.baseline or HERE / "passing" / f"{arguments.lake}.txt"
    return arguments


def main() -> int:
    """Starts what is missing, compares, and exits with 1 when a test was lost."""
    arguments = parse()
    # A plain SIGTERM would leave lakes and nodes behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    checkout = (arguments.s3_tests or checkout_suite()).resolve()
    folder = Path(tempfile.mkdtemp(prefix="shoal-s3-tests-"))
    results = arguments.results or folder / "results"
    results.mkdir(parents=True, exist_ok=True)

    def comparison(lake_url: str, node_url: str | None, forget: Callable[[], None]) -> int:
        lake = Suite(checkout, results.resolve(), arguments.lake, lake_url)
        baseline = [test for test in baseline_of(lake, arguments.baseline) if (arguments.only or "") in test]
        if node_url is None:
            print(f"{len(baseline)} tests pass on the lake")
            return 0
        return compare(lake, Suite(checkout, results.resolve(), "node", node_url), baseline, forget)

    try:
        if arguments.lake_url is not None:
            return int(comparison(arguments.lake_url, arguments.node_url, lambda: None) > 0)
        with LAKES[arguments.lake](folder / "lake", list(USERS.values())) as lake:
            if arguments.shoal is None:
                return comparison(lake.url, None, lambda: None)
            accounts = [lake.account, *(user.account for user in USERS.values())]
            node = Node(arguments.shoal.resolve(), folder / "node", lake.url, accounts, environment=ENVIRONMENT)
            with node:
                lost = comparison(lake.url, node.url, node.restart_cold)
                shutil.copy(node.log, results)
                return int(lost > 0)
    except LakeUnavailable as reason:
        print(f"skipped: {reason}")
        return 0
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
