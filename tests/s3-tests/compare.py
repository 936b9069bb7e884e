"""Runs `ceph/s3-tests` on a lake and through a node. Tests that pass on the lake must pass through the node.

Three passes go through the node: one with an empty store, then two with a read of the whole object before every read.
With `--nodes 3` they go through three nodes that answer in turn and share their blocks. With `--unknown` the nodes have
no identity: the lake judges every request as it came, and requests of signature version 2 are sent, too.
With `--sessions` the users have temporary keys: at the lake from its own STS, at three nodes each from another node.
With `--write-back` there are two passes, through three nodes that answer in turn and write everything back. In one,
objects stay dirty until a request needs them at the lake; in the other, nodes flush them while the tests run. This
needs etcd; the bytes of dirty objects are in a bucket of the same lake.
With `--packed` the same nodes flush small objects in packs, and each pass has a part of the suite.
The suite tries a test that fails in one of them again, alone, at the node and at the lake, before it counts.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import temporary  # noqa: E402 - the path comes first
from cooperating import ACCOUNTS, KEEPERS, Nodes, unknown  # noqa: E402
from packed import ADMIN, LAKE  # noqa: E402
from real import etcd  # noqa: E402
from real.cluster import Cluster  # noqa: E402
from real.lakes import LAKES, Account, Lake, LakeUnavailable, cache_dir  # noqa: E402
from real.node import Node  # noqa: E402
from real.processes import run, tried_again  # noqa: E402
from real.scratch import scratch  # noqa: E402
from sessions import USERS as SESSION_USERS  # noqa: E402
from spread import NODES  # noqa: E402
from users import BUCKETS, KEEPER, USERS, write_configuration  # noqa: E402
from written_back import BUCKET_PREFIX, restart, restart_packed  # noqa: E402

SUITE_URL = "https://github.com/ceph/s3-tests.git"
SUITE_COMMIT = "8f0ae7b404a3a2fcf7038bf1e6bf29544fe9b6a3"
FILES = ("s3tests/functional/test_s3.py", "s3tests/functional/test_headers.py")

# Left out are tests that wait minutes for a lake's background work, tests of services that are not S3, tests
# that make accounts (a node knows its identities from its configuration), and tests that no gateway of ours
# can pass.
LEFT_OUT = (
    *("lifecycle_expiration", "lifecycle_transition", "cloud_transition", "cloud_restore"),
    *("bucket_logging", "bucket_logging_cleanup", "sns", "s3select"),
    *("iam_account", "iam_cross_account", "test_of_sts", "webidentity_test"),
    "fails_on_rgw",
)
# Aborts radosgw 16.2.15, and with it every test after it.
DESELECTED = ("s3tests/functional/test_s3.py::test_upload_part_copy_percent_encoded_key",)
# MinIO refuses to delete locked objects with another status than S3, so these tests leave locked objects, for
# good or for longer than the suite waits. No test after them could clear its buckets.
_LOCKS = "s3tests/functional/test_s3.py::test_object_lock_"
DESELECTED_AT = {
    "minio": (
        f"{_LOCKS}delete_object_with_legal_hold_on",
        f"{_LOCKS}delete_multipart_object_with_legal_hold_on",
        f"{_LOCKS}changing_mode_from_governance_with_bypass",
        f"{_LOCKS}changing_mode_from_compliance",
    )
}
# At versitygw a bucket's policy binds its owner, too: no account can clear the bucket, and later tests fail.
LEFT_OUT_AT = {"versitygw": ("bucket_policy",)}
# Tests that sign with version 2, which a node does not verify, have this in their name.
OF_VERSION_2 = "_aws2"
# The tests that a dirty object cannot pass, with the reasons.
NOT_WRITTEN_BACK = HERE / "passing" / "not_written_back.txt"
# The tests that a packed object cannot pass, with the reasons.
NOT_PACKED = HERE / "passing" / "not_packed.txt"
# The tests that a lake itself fails with temporary keys, with the reasons.
NOT_IN_SESSIONS = HERE / "passing" / "not_in_sessions.txt"
# With the first age, an object goes to the lake only when a request needs it there. With the second, all
# objects go there while the tests go on.
AGES = ("1h", "1s")
# Each part has few enough buckets for `restart_packed`.
PACKED_PARTS = 24
TEST_TIMEOUT_S = 900
PASS_TIMEOUT_S = 3600


@dataclass(frozen=True)
class Suite:
    """A checkout of s3-tests and one store that it is run against."""

    checkout: Path
    folder: Path
    name: str
    url: str
    """The prefix of the names of its buckets."""
    buckets: str = BUCKETS
    environment: dict[str, str] = field(default_factory=dict)
    """Those of each of its runs."""
    plugins: Sequence[str] = ()

    def run(self, tests: Sequence[str], *, plugins: Sequence[str] = (), label: str) -> dict[str, str]:
        """Runs tests (all of the selection when none are named) and returns `passed`, `failed` or `skipped` by test."""
        configuration = self.folder / f"{self.name}.conf"
        write_configuration(configuration, self.url, self.buckets)
        results = self.folder / f"{self.name}-{label}.xml"
        wanted = self.folder / f"{self.name}-{label}.txt"
        wanted.write_text("\n".join(tests or FILES) + "\n")
        left_out = " or ".join((*LEFT_OUT, *LEFT_OUT_AT.get(self.name, ())))
        deselected = (*DESELECTED, *DESELECTED_AT.get(self.name, ()))
        selection = ("-m", f"not ({left_out})")
        environment = {
            **os.environ,
            **self.environment,
            "S3TEST_CONF": str(configuration),
            "PYTHONPATH": str(HERE),
            "AWS_EC2_METADATA_DISABLED": "true",
            # The signer in C makes no URL that has expired, and signs no header with a number in it.
            "BOTO_DISABLE_CRT": "true",
        }
        command = [
            *(sys.executable, "-m", "pytest", "--quiet", "--tb=short", "-p", "no:cacheprovider"),
            *(f"-p{plugin}" for plugin in (*self.plugins, *plugins)),
            *selection,
            *(f"--deselect={test}" for test in deselected),
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
    """Returns the tests that passed, in order of name."""
    return sorted(test for test, outcome in outcomes.items() if outcome == "passed")


# The suite for a store of this name, at this URL.
SuiteAt = Callable[..., Suite]


@dataclass(frozen=True)
class Pass:
    """One run of the suite through a node."""

    label: str
    node: Suite
    plugins: Sequence[str]
    prepare: Callable[[], None]
    """Returns further problems after the pass."""
    conclude: Callable[[], list[str]]
    """One of `PACKED_PARTS` of the suite; without it the pass has all tests."""
    part: int | None = None

    def of(self, tests: Sequence[str]) -> Sequence[str]:
        """Returns the tests of this pass."""
        return tests if self.part is None else tests[self.part :: PACKED_PARTS]


def nothing() -> None:
    """Does nothing, for a pass without preparation."""


def passes_of_node(
    node: Suite,
    forget: Callable[[], None],
    conclude: Callable[[], list[str]] = list,
    plugins: Sequence[str] = (),
) -> list[Pass]:
    """Returns a pass with an empty store, then two with every read doubled."""
    return [
        Pass("cold", node, plugins, forget, list),
        Pass("warm", node, (*plugins, "warm"), nothing, conclude),
        Pass("warm-again", node, (*plugins, "warm"), nothing, conclude),
    ]


def passes_of_cluster(node: Suite, cluster: Cluster) -> list[Pass]:
    """Returns one pass for each age of dirty objects."""

    def conclude() -> list[str]:
        outcomes = cluster.outcomes()
        print("written back: " + ", ".join(f"{count} {word}" for word, count in outcomes.items()), flush=True)
        if outcomes["committed"] == 0:
            raise RuntimeError("nothing was written back, so nothing was proved")
        return ["objects with another ETag at the lake"] if outcomes["renamed"] > 0 else []

    return [Pass(f"back-{age}", node, ("spread",), lambda age=age: restart(cluster, age), conclude) for age in AGES]


def passes_of_packing_cluster(node: Suite, cluster: Cluster) -> list[Pass]:
    """Returns a pass for each part of the suite."""

    def conclude() -> list[str]:
        print(f"{cluster.maps()} buckets had packs", flush=True)
        return ["nothing was packed"] if cluster.maps() == 0 else []

    def packed(part: int) -> Pass:
        plugins = ("spread", "packed")
        return Pass(f"packed-{part}", node, plugins, lambda: restart_packed(cluster), conclude, part)

    return [packed(part) for part in range(PACKED_PARTS)]


def nodes_through(
    arguments: argparse.Namespace,
    suite: SuiteAt,
    running: ExitStack,
    binary: Path,
    folder: Path,
    lake: Lake,
    accounts: Sequence[Account],
) -> tuple[list[Node], list[Pass]]:
    """Returns nodes that write through, and their passes. With `--unknown` they know none of `accounts`."""
    account = arguments.unknown
    known, environment = (accounts, None) if account is None else ((), unknown(account, lake))
    nodes = running.enter_context(
        Nodes(binary, folder, lake, known, arguments.nodes, environment, with_sts=arguments.sessions)
    )
    through = suite("node", nodes.url, environment=nodes.variables)
    if arguments.sessions:
        through = with_sessions(through, lake, nodes.sts_urls)

    def conclude() -> list[str]:
        sources = nodes.bytes_by_source()
        print("bytes so far: " + ", ".join(f"{bytes_} {source}" for source, bytes_ in sources.items()), flush=True)
        problems = [] if sources["local"] > 0 else ["nothing came from a cache"]
        if arguments.sessions and min(nodes.temporary_keys()) < len(SESSION_USERS):
            problems.append("a node lacks temporary keys")
        return problems

    return nodes.all, passes_of_node(through, nodes.restart_cold, conclude, nodes.plugins)


def with_sessions(suite: Suite, lake: Lake, urls: Sequence[str]) -> Suite:
    """Returns a suite whose users have temporary keys of a lake, which they get at these URLs."""
    environment = {**suite.environment, **temporary.variables(lake, urls)}
    return replace(suite, environment=environment, plugins=("sessions",))


def nodes_with_tier(
    passes: Callable[[Suite, Cluster], list[Pass]],
    suite: SuiteAt,
    running: ExitStack,
    binary: Path,
    folder: Path,
    lake: Lake,
    accounts: Sequence[Account],
) -> tuple[list[Node], list[Pass]]:
    """Returns nodes that write everything back, and their passes."""
    cluster = running.enter_context(Cluster(binary, folder, lake, accounts))
    ports = ",".join(str(node.s3_port) for node in cluster.nodes)
    keeper = f"{lake.url} {KEEPER.account.access_key} {KEEPER.account.secret_key}"
    environment = {NODES: ports, LAKE: keeper, ADMIN: cluster.nodes[-1].admin}
    through = suite("node", cluster.url, buckets=BUCKET_PREFIX, environment=environment)
    return cluster.nodes, passes(through, cluster)


def compare(lake: Suite, passes: Sequence[Pass], baseline: Sequence[str]) -> int:
    """Runs the passes one after the other; returns the number of lost tests."""
    lost: dict[str, list[str]] = {}
    for through in passes:
        tests = through.of(baseline)
        if not tests:
            continue
        through.prepare()
        started = time.monotonic()
        outcomes = through.node.run(tests, plugins=through.plugins, label=through.label)
        print_counts(f"node, {through.label}", outcomes, time.monotonic() - started)
        for trouble in through.conclude():
            lost.setdefault(trouble, []).append(through.label)
        for test in tests:
            if outcomes.get(test) != "passed" and fails_again(lake, through, test):
                lost.setdefault(test, []).append(through.label)
    for test, labels in sorted(lost.items()):
        print(f"LOST {test} ({', '.join(labels)})")
    through_node = f", {len(lost)} of them fail through the node" if passes else ""
    print(f"{len(baseline)} tests pass on the lake{through_node}")
    return len(lost)


def fails_again(lake: Suite, through: Pass, test: str) -> bool:
    """Returns whether a test that failed in a pass fails alone, too, while the lake still passes it."""
    if through.part is not None:
        through.prepare()
    if through.node.run([test], plugins=through.plugins, label="alone").get(test) == "passed":
        print(f"flaky: {test}")
        return False
    if lake.run([test], label="alone").get(test) != "passed":
        print(f"flaky at the lake: {test}")
        return False
    return True


def print_counts(label: str, outcomes: dict[str, str], seconds: float) -> None:
    """Prints one line for each pass."""
    counts = {kind: list(outcomes.values()).count(kind) for kind in ("passed", "failed", "skipped")}
    print(
        f"{label}: " + ", ".join(f"{count} {kind}" for kind, count in counts.items()) + f" in {seconds:.0f} s",
        flush=True,
    )


def baseline_of(lake: Suite, path: Path) -> list[str]:
    """Returns the tests that pass on the lake: those of an earlier run's file, else those that pass twice in a row."""
    if path.exists():
        return tests_in(path)
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


def tests_in(path: Path) -> list[str]:
    """Returns the names of tests in a file, without its comments."""
    return [line for line in path.read_text().splitlines() if line and not line.startswith("#")]


def checkout_suite() -> Path:
    """Returns the folder of the suite at the pinned commit, fetched once into the cache folder."""
    folder = cache_dir() / f"s3-tests-{SUITE_COMMIT[:12]}"
    if folder.exists():
        return folder
    # Several suites may want it at the same time: one fetches it, and it appears whole.
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            tried_again(lambda: _clone(folder), RuntimeError, subprocess.TimeoutExpired)
    return folder


def _clone(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent) as fresh:
        clone = Path(fresh) / "s3-tests"
        run(["git", "clone", "--quiet", SUITE_URL, clone])
        run(["git", "-C", clone, "checkout", "--quiet", SUITE_COMMIT])
        clone.rename(folder)


def parse() -> argparse.Namespace:
    """Returns the command line."""
    parser = argparse.ArgumentParser(prog="tests/s3-tests/run.sh", description=__doc__)
    parser.add_argument("--s3-tests", type=Path, help="a checkout of ceph/s3-tests; without it one is fetched")
    parser.add_argument("--lake", choices=sorted(LAKES), default="ceph", help="the lake to start (ceph)")
    parser.add_argument("--shoal", type=Path, help="the binary; without it only the lake is tested")
    parser.add_argument(
        "--nodes", type=int, choices=(1, 3), default=1, help="the number of nodes that write through (1)"
    )
    parser.add_argument(
        "--unknown",
        nargs="?",
        const=KEEPERS,
        choices=ACCOUNTS,
        help="nodes that know no user; their own account is that of the keeper of packs, of the lake's owner, or none",
    )
    parser.add_argument(
        "--sessions", action="store_true", help="three nodes that write through and give the users temporary keys"
    )
    parser.add_argument(
        "--write-back", action="store_true", help="three nodes that acknowledge before the lake has what is written"
    )
    parser.add_argument("--packed", action="store_true", help="the same, and small objects go to the lake in packs")
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
    if (arguments.write_back or arguments.packed) and arguments.shoal is None:
        parser.error("--write-back and --packed start nodes of --shoal, in front of a lake of its own")
    if arguments.unknown and (arguments.write_back or arguments.packed):
        parser.error("--unknown goes without --write-back and --packed: nodes refuse whom they do not know there")
    if arguments.sessions:
        if arguments.unknown or arguments.write_back or arguments.packed or arguments.lake_url:
            parser.error("--sessions starts lake and nodes, and goes without --unknown, --write-back and --packed")
        if arguments.lake not in temporary.ACTIONS:
            parser.error(f"--sessions needs one of {', '.join(temporary.ACTIONS)}")
        arguments.nodes = 3
    arguments.baseline = arguments.baseline or HERE / "passing" / f"{arguments.lake}.txt"
    return arguments


def main() -> int:
    """Parses, compares, and returns 1 if a test was lost."""
    arguments = parse()
    checkout = (arguments.s3_tests or checkout_suite()).resolve()
    try:
        with scratch("shoal-s3-tests-") as folder:
            return compared(arguments, checkout, folder)
    except (LakeUnavailable, etcd.EtcdUnavailable) as reason:
        print(f"skipped: {reason}")
        return 0


def compared(arguments: argparse.Namespace, checkout: Path, folder: Path) -> int:
    """Starts the missing servers, compares, and returns 1 if a test was lost."""
    results = arguments.results or folder / "results"
    results.mkdir(parents=True, exist_ok=True)
    is_back = arguments.write_back or arguments.packed
    lists = (
        (is_back, NOT_WRITTEN_BACK),
        (arguments.packed, NOT_PACKED),
        (arguments.sessions, NOT_IN_SESSIONS),
    )

    def suite(name: str, url: str, **more: Any) -> Suite:
        return Suite(checkout, results.resolve(), name, url, **more)

    def lost(lake: Suite, passes: Sequence[Pass]) -> int:
        left_out = {test for is_meant, path in lists if is_meant for test in tests_in(path)}
        tests = [test for test in baseline_of(lake, arguments.baseline) if test not in left_out]
        tests = [test for test in tests if arguments.unknown or OF_VERSION_2 not in test]
        tests = [test for test in tests if (arguments.only or "") in test]
        return int(compare(lake, passes, tests) > 0)

    if is_back:
        etcd.program()
    if arguments.lake_url is not None:
        passes = passes_of_node(suite("node", arguments.node_url), nothing)
        return lost(suite(arguments.lake, arguments.lake_url), passes)
    with ExitStack() as running:
        users = [*USERS.values(), KEEPER]
        start = partial(temporary.start, arguments.lake) if arguments.sessions else LAKES[arguments.lake]
        started = running.enter_context(start(folder / "lake", users))
        lake = suite(arguments.lake, started.url)
        if arguments.sessions:
            lake = with_sessions(lake, started, [started.url])
        if arguments.shoal is None:
            return lost(lake, ())
        accounts = [started.account, *(user.account for user in users)]
        of_cluster = passes_of_packing_cluster if arguments.packed else passes_of_cluster
        build = partial(nodes_with_tier, of_cluster) if is_back else partial(nodes_through, arguments)
        nodes, passes = build(suite, running, arguments.shoal.resolve(), folder, started, accounts)
        try:
            return lost(lake, passes)
        finally:
            for node in (node for node in nodes if node.log.exists()):
                shutil.copy(node.log, results / f"{node.name}.log")


if __name__ == "__main__":
    sys.exit(main())
