"""Measures what C2P's events cost two nodes: `PYTHONPATH=tests python3 -m bench.cache_events --shoal BIN`.

A node holds blocks of objects. The example `cache_events` of shoal-node tells it of 5,000 events a second in the name
of its other member, in batches as nodes make them. Prints the processor time of both sides, and bytes.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from net.objects import contents
from real.lakes import LAKES, Lake, LakeUnavailable
from real.node import Node
from real.processes import free_port
from real.scratch import scratch
from real.wire import send

from bench.process_facts import cpu_seconds

ROOT = Path(__file__).parents[1]
SECRET = "what the nodes of this pair share"
TABLES = """
[cooperation]
mode = "hierarchy"
listen = "127.0.0.1:{port}"
seeds = ["127.0.0.1:{seed}"]
layers = ["rack", "cluster"]
split = [0, 100]
secret_key = "{secret}"
"""
BUCKET = "events"
EVENTS, OBJECTS, BLOCKS, BLOCK = 5_000, 200, 5, 64 << 10


@dataclass(frozen=True)
class Course:
    """The share of one processor that each side took, and what was told."""

    teller: float
    hearer: float
    events: int
    batches: int
    bytes: int
    failed: int


def main() -> int:
    """Measures and prints rows of a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shoal", type=Path, required=True)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    example = _build()
    try:
        with scratch("shoal-cache-events-") as folder, LAKES["minio"](folder / "lake", ()) as lake:
            _measure(arguments, example, folder, lake)
    except LakeUnavailable as reason:
        print(f"skipped: {reason}")
    return 0


def _build() -> Path:
    command = ["cargo", "build", "--release", "--locked", "-p", "shoal-node", "--example", "cache_events"]
    built = subprocess.run([*command, "--message-format", "json"], stdout=subprocess.PIPE, text=True, check=True).stdout
    artifacts = [json.loads(line) for line in built.splitlines()]
    executables = [artifact["executable"] for artifact in artifacts if artifact.get("executable")]
    return Path(executables[-1])


def _measure(arguments: argparse.Namespace, example: Path, folder: Path, lake: Lake) -> None:
    seed = free_port()

    def node(name: str, port: int) -> Node:
        tables = TABLES.format(port=port, seed=seed, secret=SECRET)
        return Node(
            arguments.shoal.resolve(),
            folder / name,
            lake.url,
            [lake.account],
            freshness="immutable",
            block_size="64KiB",
            environment={"SHOAL_STORE_POLICY": "c2p+lru"},
            name=name,
            topology=f"dc1/a/{name}",
            tables=tables,
        )

    with node("hearing", seed) as hearing, node("telling", free_port()):
        while len(json.loads(hearing.ask("/members"))["members"]) < 2:
            time.sleep(0.1)
        versions = _fill(hearing, lake)
        courses, alone = [], []
        for _ in range(arguments.rounds):
            idle = _idle(hearing, arguments.seconds)
            alone.append(_tell(example, seed, [], 0, arguments.seconds)[0])
            before, held = cpu_seconds([hearing.pid]), _heard(hearing)
            teller, events, batches, size, failed = _tell(example, seed, versions, EVENTS, arguments.seconds)
            hearer = (cpu_seconds([hearing.pid]) - before) / arguments.seconds * 100 - idle
            if _heard(hearing) - held < events * 0.99 - failed:
                raise RuntimeError(f"the node heard {_heard(hearing) - held} of {events} events")
            courses.append(Course(teller - alone[-1], hearer, int(events), int(batches), int(size), int(failed)))
        _print(courses, arguments.seconds)


def _fill(node: Node, lake: Lake) -> list[str]:
    """Has the nodes hold objects; returns their versions."""
    send(lake.url, lake.account, "PUT", BUCKET)
    versions = []
    for number in range(OBJECTS):
        key = f"object-{number}"
        send(lake.url, lake.account, "PUT", BUCKET, key, body=contents(key, BLOCK * BLOCKS))
        send(node.url, lake.account, "GET", BUCKET, key)
    node.settle()
    for number in range(OBJECTS):
        page = json.loads(node.ask(f"/explain?object=s3%3A%2F%2F{BUCKET}%2Fobject-{number}"))
        versions.append(page["version"]["id"])
    return versions


def _idle(node: Node, seconds: int) -> float:
    before = cpu_seconds([node.pid])
    time.sleep(seconds)
    return (cpu_seconds([node.pid]) - before) / seconds * 100


def _heard(node: Node) -> int:
    found = re.search(r'^shoal_messages_total\{kind="cache-event",outcome="received"\} (\d+)$', node.metrics(), re.M)
    return int(found[1]) if found else 0


def _tell(example: Path, port: int, versions: Sequence[str], events: int, seconds: int) -> list[float]:
    words = [example, f"127.0.0.1:{port}", "hearing", "telling", SECRET, str(events), str(seconds)]
    told = subprocess.run(words, input="\n".join(versions), capture_output=True, text=True, check=True).stdout
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", told)]


def _print(courses: Sequence[Course], seconds: int) -> None:
    def row(what: str, values: Sequence[float], form: str) -> None:
        middle, low, high = statistics.median(values), min(values), max(values)
        print(f"| {what} | {form.format(middle)} ({form.format(low)} to {form.format(high)}) |")

    row("events a second", [course.events / seconds for course in courses], "{:,.0f}")
    row("processor of the node that tells, %", [course.teller for course in courses], "{:.2f}")
    row("processor of the node that hears, %", [course.hearer for course in courses], "{:.2f}")
    row("events in a batch", [course.events / course.batches for course in courses], "{:.0f}")
    row("bytes of an event in a batch", [course.bytes / course.events for course in courses], "{:.1f}")
    row("events that were not taken", [course.failed for course in courses], "{:.0f}")


if __name__ == "__main__":
    sys.exit(main())
