"""Opens the console of three nodes in a browser: `python -m console --shoal BIN [--pictures FOLDER]`."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from real import together
from real.lakes import Account
from real.node import Node
from real.processes import Process, await_that, free_port, run
from real.report import Difference, Report
from real.scratch import scratch
from real.wire import send

from .browser import Browser

_TABLES = """
[[hints.rule]]
namespace = "etl*"
"""
_OBJECTS, _BYTES = 160, 300_000
# Samples of the history to wait for: a picture wants some minutes.
_SAMPLES, _SAMPLES_FOR_PICTURES = 3, 30


def main() -> int:
    """Parses, runs, counts."""
    parser = argparse.ArgumentParser(prog="tests/console/run.sh", description=__doc__)
    parser.add_argument("--shoal", type=Path, required=True, help="the binary")
    parser.add_argument("--pictures", type=Path, help="keep pictures of both themes in this folder")
    arguments = parser.parse_args()
    report = Report()
    with scratch("shoal-console-", False) as folder, _lake(arguments.shoal, folder) as (lake, url, account, bucket):
        settings = together.settings()
        nodes = [
            Node(
                arguments.shoal.resolve(),
                folder / own["name"],
                url,
                [account],
                block_size="256KiB",
                capacity="24MiB",
                environment={"SHOAL_LAKE_BANDWIDTH": "400Mbit shared"},
                **{**own, "tables": own["tables"] + _TABLES},
            )
            for own in settings
        ]
        try:
            together.start(nodes)
            samples = _SAMPLES_FOR_PICTURES if arguments.pictures else _SAMPLES
            _work(nodes, account, bucket, arguments.shoal, samples)
            _prove(report, nodes, Browser(folder / "browser"), lake, bucket, arguments.pictures)
        finally:
            together.for_all(nodes, Node.stop)
    return report.finish()


@contextmanager
def _lake(binary: Path, folder: Path) -> Iterator[tuple[Process, str, Account, str]]:
    """Runs the embedded lake; yields it with its URL, the account and the bucket that it has."""
    ports = [argument for name in ("s3", "admin", "peer", "lake") for argument in (f"--{name}-port", str(free_port()))]
    log = folder / "lake.log"
    process = Process([binary, "dev", "--nodes", "1", "--dir", folder / "lake", "--json", *ports], log)
    try:
        process.wait_until(lambda: log.read_text().startswith("{"), 60)
        told = json.loads(log.read_text().splitlines()[0])
        yield process, told["lake"], Account(told["access_key"], told["secret_key"]), told["bucket"]
    finally:
        process.stop()


def _work(nodes: list[Node], account: Account, bucket: str, binary: Path, samples: int) -> None:
    """Writes and reads objects, gives an order and sends an event; waits until the history shows it."""
    keys = [f"sales/day={number % 4}/part-{number}" for number in range(_OBJECTS)]

    def write(key: str) -> None:
        if send(nodes[0].url, account, "PUT", bucket, key, body=b"x" * _BYTES).status != 200:
            raise RuntimeError(f"{key} cannot be written")

    def read(number: int) -> None:
        # Half of the reads are of an eighth of the objects.
        key = keys[number * 7919 % (_OBJECTS if number % 2 else _OBJECTS // 8)]
        if len(send(nodes[number % len(nodes)].url, account, "GET", bucket, key).body) != _BYTES:
            raise RuntimeError(f"{key} cannot be read")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, keys))
        list(pool.map(read, range(400)))
        run([binary, "prefetch", f"s3://{bucket}/sales/", "--wait", "--node", nodes[0].admin])
        event = {
            "eventType": "START",
            "eventTime": "2026-11-30T02:00:00Z",
            "run": {"runId": "019ad3f0-0000-7000-8000-000000000001"},
            "job": {"namespace": "etl", "name": "nightly"},
            "inputs": [{"namespace": f"s3://{bucket}", "name": "sales/day=1"}],
        }
        request = urllib.request.Request(f"{nodes[0].admin}/api/v1/lineage", json.dumps(event).encode())
        urllib.request.urlopen(request, timeout=10).close()
        rows = len(json.loads(nodes[0].ask("/history"))["rows"])
        turn = 0
        while len(json.loads(nodes[0].ask("/history"))["rows"]) < rows + samples:
            list(pool.map(read, range(turn, turn + 20 + turn % 90)))
            turn += 30
            time.sleep(0.5)


def _prove(
    report: Report, nodes: list[Node], browser: Browser, lake: Process, bucket: str, pictures: Path | None
) -> None:
    first = nodes[0]
    with report.check("all nodes, what they serve, tasks and hints"):
        text = browser.text(f"{first.admin}/")
        _expect(text, "3 of 3 nodes answer", "nothing to look at", *(node.name for node in nodes))
        _expect(text, f"s3://{bucket}/sales/day=1/", "prefetch", "etl/nightly", "No plan in force")
        _expect(text, "this node", "other nodes", "client", "prefetch", "blocks in L1")
        hits = text.split("of bytes without the lake")[0].split()[-1]
        if not hits.endswith("%"):
            raise Difference(f"the hit rate is {hits}")
    if pictures is not None:
        pictures.mkdir(parents=True, exist_ok=True)
        for name, is_dark in (("light", False), ("dark", True)):
            browser.picture(f"{first.admin}/", pictures / f"console-{name}.png", is_dark=is_dark)
    with report.check("the others show the cluster when a node is killed"):
        subprocess.run(["kill", "-9", str(nodes[2].pid)], check=True)
        nodes[2].stop()
        await_that("the others forget it", lambda: together.knows(nodes[1], 2))
        _expect(browser.text(f"{nodes[1].admin}/"), "2 of 2 nodes answer")
    with report.check("a condition is shown with what to do"):
        lake.stop()

        def notices() -> bool:
            send(first.url, first.accounts[0], "GET", bucket, "never/asked/for")
            return "lake-silent" in first.ask("/status")

        await_that("the node notices", notices)
        _expect(browser.text(f"{first.admin}/"), "to look at", "lake-silent", "look at the lake and at the network")


def _expect(text: str, *words: str) -> None:
    for each in words:
        if each not in text:
            raise Difference(f"{each!r} is not in {text[:2000]!r}")


if __name__ == "__main__":
    sys.exit(main())
