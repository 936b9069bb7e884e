"""Compares Spark and Hadoop's S3A at a lake with the same at three nodes that write back.

Connections go to the nodes in turn. Before that, the tutorial about Spark runs as its page says. `--all` runs the two
parts once with objects that stay dirty until a request needs them at the lake, and once with flushes under the
clients, with more of Hadoop's tests.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from real import etcd, maven, tier
from real.balancer import Balancer
from real.cluster import Cluster
from real.lakes import LAKES, Lake, LakeUnavailable
from real.report import Difference, Report, Skip, first_differences
from real.scratch import scratch

from . import bucket, contract, jars, spark, tutorial

# With the first age, an object goes to the lake only when a request needs it there. With the second, all
# objects go there while the clients work.
AGES = ("1h", "1s")
PARTS = ("spark", "contract")
TUTORIAL = "tutorial"
# The store of the tier. It is not the lake, so that no test takes bytes of one for bytes of the other.
TIER = "versitygw"
# Parts of names that a commit leaves behind when it does not end.
LEFT_BEHIND = ("__magic", "_temporary", ".spark-staging", ".pending")


@dataclass
class Setting:
    """A lake with nodes in front of it."""

    report: Report
    lake: Lake
    cluster: Cluster
    balancer: Balancer
    folder: Path
    ages: Sequence[str]
    everything: bool
    """The results of Spark at the lake, by committer. Spark runs there once for all runs at the nodes."""
    seen: dict[str, dict[str, object] | Skip] = field(default_factory=dict)

    def restart(self, age: str) -> None:
        """Restarts the nodes with empty stores; they bring objects of this age to the lake."""
        prefixes = [f"s3://{part}-{age}/" for part in PARTS]
        tables = tier.tables(tier.Place.of(self.cluster.store, self.cluster.etcd), age, prefixes)
        self.cluster.restart(tables)


def main() -> int:
    """Parses, runs, counts."""
    arguments = parse()
    report = Report()
    try:
        with scratch("shoal-hadoop-", arguments.keep) as folder:
            etcd.program()
            jars.fetched()
            if arguments.only in {None, TUTORIAL}:
                # Without them the run is skipped here; within a check it would have failed.
                maven.fetched(tutorial.JARS)
                with report.check("the tutorial about stages that start warm does what it says"):
                    tutorial.prove(arguments.shoal.resolve(), folder)
            if arguments.only != TUTORIAL:
                prove(report, folder, arguments)
        return report.finish()
    except (LakeUnavailable, etcd.EtcdUnavailable, maven.JarsUnavailable) as reason:
        print(f"skipped: {reason}")
        return 0


def parse() -> argparse.Namespace:
    """Returns the command line."""
    parser = argparse.ArgumentParser(prog="tests/hadoop/run.sh", description=__doc__)
    parser.add_argument("--lake", choices=sorted(LAKES), default="minio", help="the lake to start (minio)")
    parser.add_argument("--only", choices=(*PARTS, TUTORIAL), help="one of the parts")
    parser.add_argument("--all", action="store_true", help="both ages, and more of Hadoop's tests")
    parser.add_argument("--shoal", type=Path, required=True, help="the binary")
    parser.add_argument("--keep", action="store_true", help="keep logs and data")
    return parser.parse_args()


def prove(report: Report, folder: Path, arguments: argparse.Namespace) -> None:
    """Runs both parts at one lake."""
    ages = AGES if arguments.all else AGES[:1]
    buckets = [f"{part}-{age}" for part in PARTS for age in ages]
    with ExitStack() as running:
        lake = running.enter_context(LAKES[arguments.lake](folder / "lake", ()))
        print(f"-- {lake.name} {lake.version}", flush=True)
        for name in ("spark-lake", "contract-lake", *buckets):
            bucket.make(lake.url, lake.account, name)
        store = running.enter_context(LAKES[TIER](folder / "tier", ()))
        binary = arguments.shoal.resolve()
        cluster = running.enter_context(Cluster(binary, folder, lake, [lake.account], store=store))
        balancer = running.enter_context(Balancer([node.s3_port for node in cluster.nodes]))
        setting = Setting(report, lake, cluster, balancer, folder, ages, arguments.all)
        if arguments.only != "contract":
            prove_spark(setting)
        if arguments.only != "spark":
            prove_contract(setting)
        with report.check(lake.name, "nodes that write back", "log no error"):
            if errors := cluster.errors():
                raise Difference("\n".join(errors[:5]))


def prove_spark(setting: Setting) -> None:
    """Tests each committer at the lake and at the nodes."""
    lake = setting.lake
    endpoints = {"spark-lake": lake.url} | {f"spark-{age}": setting.balancer.url for age in setting.ages}
    running = spark.session(jars.fetched(), setting.folder / "spark", lake.account, endpoints)
    try:
        for age in setting.ages:
            setting.restart(age)
            for committer in spark.COMMITTERS:
                with setting.report.check(lake.name, "spark", age, committer.name, "leaves the same rows"):
                    compare_spark(setting, running, committer, age)
            conclude_spark(setting, running, age)
    finally:
        running.stop()


def compare_spark(setting: Setting, running: spark.SparkSession, committer: spark.Committer, age: str) -> None:
    """Compares the rows at the nodes with those at the lake, while Spark writes and then at another node."""
    name, before = committer.name, setting.cluster.outcomes()["committed"]
    if name not in setting.seen:
        try:
            setting.seen[name] = spark.work(running, committer, "spark-lake")
        except Exception as error:
            setting.seen[name] = Skip(f"the lake itself: {brief(error)}")
    expected = setting.seen[name]
    if isinstance(expected, Skip):
        raise expected
    try:
        found = spark.work(running, committer, f"spark-{age}")
    except Exception as error:
        raise Difference(brief(error)) from error
    elsewhere = spark.read_elsewhere(running, committer, f"spark-{age}", setting.cluster.nodes[2].url)
    require_equal(expected, found)
    require_equal({key: expected[key] for key in elsewhere}, elsewhere)
    if setting.cluster.outcomes()["committed"] == before:
        raise Difference("no write was acknowledged by the tier")


def conclude_spark(setting: Setting, running: spark.SparkSession, age: str) -> None:
    """Compares the contents of the bucket before and after everything has reached the lake."""
    lake, cluster, name = setting.lake, setting.cluster, f"spark-{age}"
    dirty = cluster.dirty()
    shown = bucket.listing(cluster.nodes[1].url, lake.account, name)
    with setting.report.check(lake.name, "spark", age, "leaves no more behind than at the lake"):
        require_equal(nameless(bucket.listing(lake.url, lake.account, "spark-lake")), nameless(shown))
        if left := [key for key in shown if any(mark in key for mark in LEFT_BEHIND)]:
            raise Difference(f"left behind: {left[:5]}")
        for node in cluster.nodes:
            if left := bucket.uploads(node.url, lake.account, name):
                raise Difference(f"open uploads at {node.name}: {left[:5]}")
    with setting.report.check(lake.name, "spark", age, "everything reaches the lake"):
        if age == AGES[0] and dirty == 0:
            raise Difference("nothing was dirty any more, so Spark did not read what was")
        cluster.bring_to_the_lake(by_order=age == AGES[0])
        print(f"     {age}: {dirty} dirty at the end of Spark's work; {cluster.outcomes()}", flush=True)
        require_equal(bucket.listing(lake.url, lake.account, name), shown)
        if left := bucket.uploads(lake.url, lake.account, name):
            raise Difference(f"open uploads at the lake: {left[:5]}")
        for committer in spark.COMMITTERS:
            expected = setting.seen[committer.name]
            if not isinstance(expected, Skip):
                found = spark.read_elsewhere(running, committer, name, lake.url)
                require_equal({key: expected[key] for key in found}, found)


def prove_contract(setting: Setting) -> None:
    """Runs Hadoop's tests, class by class. A test that passes at the lake must pass at the nodes."""
    names = (*contract.CLASSES, *(contract.MORE_CLASSES if setting.everything else ()))
    tests, lake = contract.compiled(), setting.lake

    def outcomes(side: str, which: Sequence[str], url: str, label: str = "") -> dict[str, str]:
        folder = setting.folder / f"contract-{side}{label}"
        return tests.run(which, folder, url, lake.account, f"contract-{side}")

    baseline = outcomes("lake", names, lake.url)
    for age in setting.ages:
        setting.restart(age)
        found = outcomes(age, names, setting.balancer.url)
        for name in names:
            short = name.rpartition(".")[2]
            of_class = [
                test for test, outcome in baseline.items() if outcome == "passed" and test.startswith(f"{name}#")
            ]
            with setting.report.check(lake.name, "contract", age, short, f"{len(of_class)} tests pass as at the lake"):
                lost = [test for test in of_class if found.get(test) != "passed"]
                if not of_class:
                    raise Skip("none passes at the lake itself")
                # In a test that fails once, another client of the machine may have had its time.
                if lost:
                    again = outcomes(age, [name], setting.balancer.url, f"-again-{short}")
                    lost = [test for test in lost if again.get(test) != "passed"]
                if lost:
                    raise Difference("\n".join(test.rpartition("#")[2] for test in lost))
        with setting.report.check(lake.name, "contract", age, "was written back, and everything reaches the lake"):
            outcome = setting.cluster.outcomes()
            print(f"     {age}: {setting.cluster.dirty()} dirty at the end of the tests; {outcome}", flush=True)
            if outcome["committed"] == 0:
                raise Difference("no write was acknowledged by the tier")
            setting.cluster.bring_to_the_lake(by_order=age == AGES[0])


def nameless(listing: bucket.Listing) -> list[tuple[str, int]]:
    """Keys without the ids of jobs, and sizes but those of reports, which tell times."""
    return sorted((spark.nameless(key), 0 if key.endswith("/_SUCCESS") else size) for key, (_, size) in listing.items())


def require_equal(expected: object, found: object) -> None:
    """Raises with the first differences."""
    if differences := first_differences(expected, found):
        raise Difference("; ".join(differences))


def brief(error: Exception) -> str:
    """Returns the first lines of an error of Java, which has many."""
    return "\n".join(str(error).splitlines()[:3])[:600]


if __name__ == "__main__":
    sys.exit(main())
