"""Small objects that are packed on their way to the lake, against plain ones: `python -m bench.tier.packs --shoal BIN`.

One node has two rules that differ in `pack = true` alone. The parts: `flush` (time and PUTs of a flush to a lake 50 ms
away), `read` (cold reads, near the lake and 50 ms away), `prefetch` (cold objects 50 ms away against reading them one
by one), and `requests` (all requests at the lake for each object that lives on after overwrites and removals).
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from real.lakes import LAKES
from real.node import Node
from real.processes import run
from real.scratch import scratch
from real.wire import send

from bench.bed import BUCKET, KIB, MIB
from bench.client import read
from bench.counting import CountingRelay
from bench.load import Get, Put, generate
from bench.process_facts import cpu_seconds
from bench.report import Goal, Page, Row, Spread
from bench.small import in_turn

from .bed import BACK, Options, TierBed, dirty_objects, in_folder, tables
from .delay import DelayRelay

LAKE_S = 0.05
PACKED = "packed/"
SIDES = {"packed": PACKED, "plain": BACK}
RULE = """
[[write.rule]]
prefix = "s3://{bucket}/{packed}"
mode = "back"
pack = true
pack_as = "{keeper}"
"""
# The load generator has all bytes of a batch in memory.
BATCH_BYTES, CONNECTIONS = 64 * MIB, 16
FLUSHED_SIZE, READ_SIZE, FETCHED_SIZE, LIVING_SIZE = 64 * KIB, 64 * KIB, 4 * KIB, 4 * KIB
# Objects that are read, or fetched, at most in a round.
READS, FETCHED = 200, 2_000
WARM_UP = 4
# The keeper removes what nothing names any more after twice the longest life of a session.
QUIET_S = 90
TIME_GOAL, PUTS_GOAL, READ_GOAL = Goal(0.1), Goal(1), Goal(1.1)
PREFETCH_GOAL, REQUESTS_GOAL = Goal(10, at_least=True), Goal(1)


@dataclass
class _PackBed:
    """A node with both rules, and its lake, whose requests are counted, near by or far away."""

    tier: TierBed
    counting: CountingRelay = field(init=False)
    far_url: str = field(init=False)
    node: Node = field(init=False)

    def __post_init__(self) -> None:
        self.counting = self.tier.enter(CountingRelay(self.tier.lake.url))
        self.far_url = self.tier.enter(DelayRelay(self.counting.url, LAKE_S)).url
        keeper = self.tier.account.access_key
        described = tables(in_folder(self.tier.folder / "tier")) + RULE.format(
            bucket=BUCKET, packed=PACKED, keeper=keeper
        )
        self.node = self.tier.node("node", described, lake_url=self.far_url)

    @property
    def page(self) -> Page:
        """Returns the page of the results."""
        return self.tier.page

    def write(self, keys: Sequence[str], size: int) -> None:
        """Writes objects into the tier."""
        headers = {"x-shoal-write": "back"}
        batch = BATCH_BYTES // size
        for first in range(0, len(keys), batch):
            puts = [Put(BUCKET, key, _body(key, size), headers) for key in keys[first : first + batch]]
            connections = min(CONNECTIONS, len(puts))
            load = generate(
                self.node.url,
                self.tier.account,
                puts,
                self.tier.scratch,
                connections=connections,
                seconds=600,
                once=True,
            )
            if load.bad_statuses or load.broken or load.requests != len(puts):
                raise RuntimeError(f"{len(puts)} writes from {keys[first]}: {load}")

    def flush(self, prefix: str, objects: int | None = None) -> float:
        """Brings everything below a prefix to the lake, `objects` of them if that is given; returns the seconds."""
        if objects is not None and (dirty := dirty_objects(self.node)) != objects:
            raise RuntimeError(f"{dirty} objects are dirty in place of {objects}")
        seconds = self.order("flush", prefix)
        if dirty := dirty_objects(self.node):
            raise RuntimeError(f"{dirty} objects are dirty after a flush: {self.node.ask('/status')}")
        return seconds

    def order(self, verb: str, prefix: str, *arguments: str) -> float:
        """Runs a command about a prefix until its end; returns the seconds."""
        command = [self.tier.options.binary, verb, f"s3://{BUCKET}/{prefix}", "--node", self.node.admin, *arguments]
        began = time.perf_counter()
        run(command, timeout_s=1800)
        return time.perf_counter() - began

    def empty(self, lake_url: str) -> None:
        """Starts the node again with an empty cache and this lake."""
        self.node.lake_url = lake_url
        self.node.restart_cold()

    def read(self, key: str, size: int) -> float:
        """Reads an object and compares it; returns the seconds."""
        expected = memoryview(_body(key, size).encode())
        return read(self.node.url, self.tier.account, Get(BUCKET, key), expected).last_byte


def main() -> int:
    """Part after part."""
    arguments = _parse()
    options = Options(arguments.shoal.resolve(), arguments.rounds, 0, arguments.objects, arguments.lake)
    page = Page(
        f"{run([options.binary, '--version']).strip()}, {options.lake}",
        f"{options.rounds} interleaved rounds, {options.objects:,} objects, {LAKE_S * 1e3:.0f} ms to the lake.",
    )
    for part in arguments.only or PARTS:
        began = time.monotonic()
        with scratch("shoal-packs-") as folder, TierBed(options, folder, page) as bed:
            PARTS[part](_PackBed(bed))
        print(f"== {part}: {time.monotonic() - began:.0f} s", flush=True)
    if arguments.results:
        with arguments.results.open("a") as file:
            file.write("\n" + page.markdown(datetime.now(UTC)))
    return 0


def flush(bed: _PackBed) -> None:
    """Measures the flush of all objects, whose PUTs are counted at the lake."""
    count = bed.tier.options.objects
    seconds: dict[str, list[float]] = {side: [] for side in SIDES}
    puts: dict[str, list[float]] = {side: [] for side in SIDES}
    cpu: dict[str, list[float]] = {side: [] for side in SIDES}
    for turn in range(bed.tier.options.rounds):
        for side, prefix in _in_turn(turn):
            bed.write(_keys(f"{prefix}{turn}/", count), FLUSHED_SIZE)
            bed.counting.take_requests()
            before = cpu_seconds([bed.node.pid])
            seconds[side].append(bed.flush(prefix, count))
            cpu[side].append(cpu_seconds([bed.node.pid]) - before)
            puts[side].append(bed.counting.take_requests()["PUT"])
    case = f"flush of {count:,} objects of 64 KiB, {LAKE_S * 1e3:.0f} ms away"
    told = ", ".join(
        f"{side} {median(taken):.1f} s, {median(cpu[side]):.1f} s of CPU of the node" for side, taken in seconds.items()
    )
    bed.page.add(Row(case, "time, packed to plain", _ratios(seconds), TIME_GOAL, told))
    told = ", ".join(f"{side} {median(counts):.0f}" for side, counts in puts.items())
    percent = Spread.of([100 * packed / plain for packed, plain in zip(*puts.values(), strict=True)])
    bed.page.add(Row(case, "PUTs, packed in % of plain", percent, PUTS_GOAL, told))


def reads(bed: _PackBed) -> None:
    """Measures cold reads, of packed and plain objects in turn."""
    count = min(bed.tier.options.objects, READS) + WARM_UP
    for prefix in SIDES.values():
        bed.write(_keys(prefix, count), READ_SIZE)
        bed.flush(prefix)
    for place, url in (("near by", bed.tier.lake.url), (f"{LAKE_S * 1e3:.0f} ms away", bed.far_url)):
        seconds: dict[str, list[float]] = {side: [] for side in SIDES}
        asked: dict[str, Counter[str]] = {side: Counter() for side in SIDES}
        for turn in range(bed.tier.options.rounds):
            bed.empty(url)
            taken: dict[str, list[float]] = {side: [] for side in SIDES}
            for number in range(count):
                for side, prefix in _in_turn(turn + number):
                    bed.counting.take_requests()
                    took = bed.read(_keys(prefix, count)[number], READ_SIZE)
                    # The first ones open connections, and read the map.
                    if number >= WARM_UP:
                        taken[side].append(took)
                        asked[side] += bed.counting.take_requests()
            for side in SIDES:
                seconds[side].append(median(taken[side]) * 1e3)
        told = ", ".join(f"{side} {median(each):.2f} ms" for side, each in seconds.items())
        total = bed.tier.options.rounds * (count - WARM_UP)
        if any(asked.values()):
            told += "; requests each: " + ", ".join(f"{side} {_each(of, total)}" for side, of in asked.items())
        bed.page.add(Row(f"cold read, 64 KiB, {place}", "p50, packed to plain", _ratios(seconds), READ_GOAL, told))
    _reads_at_lake(bed, count)


def _reads_at_lake(bed: _PackBed, count: int) -> None:
    """Measures the same reads without a node: ranges of a pack, and plain objects. No node can be nearer than that."""
    lake = bed.tier.lake
    query = {"list-type": "2", "prefix": f"{PACKED}.shoal-pack/"}
    listed = send(lake.url, lake.account, "GET", BUCKET, query=query).body.decode()
    packs = re.findall(r"<Key>([^<]+\.zip)</Key>", listed)
    bodies = {pack: send(lake.url, lake.account, "GET", BUCKET, pack).body for pack in packs}
    ranges = [
        (pack, first) for pack, body in bodies.items() for first in range(0, len(body) - READ_SIZE + 1, READ_SIZE)
    ]
    seconds: dict[str, list[float]] = {side: [] for side in SIDES}
    for turn in range(bed.tier.options.rounds):
        taken: dict[str, list[float]] = {side: [] for side in SIDES}
        for number in range(count - WARM_UP):
            pack, first = ranges[number % len(ranges)]
            for side, prefix in _in_turn(turn + number):
                get = Get(BUCKET, _keys(prefix, count)[number])
                expected = _body(get.key, READ_SIZE).encode()
                if side == "packed":
                    get = Get(BUCKET, pack, f"bytes={first}-{first + READ_SIZE - 1}")
                    expected = bodies[pack][first : first + READ_SIZE]
                taken[side].append(read(lake.url, lake.account, get, memoryview(expected)).last_byte)
        for side in SIDES:
            seconds[side].append(median(taken[side]) * 1e3)
    told = ", ".join(f"{side} {median(each):.2f} ms" for side, each in seconds.items())
    bed.page.add(Row("the same without a node", "p50, range of a pack to object", _ratios(seconds), None, told))


def prefetch(bed: _PackBed) -> None:
    """Measures a prefetch of cold objects against reading them one by one."""
    count = min(bed.tier.options.objects, FETCHED)
    names = {side: _keys(f"{prefix}these/", count) for side, prefix in SIDES.items()}
    for side, prefix in SIDES.items():
        bed.write(names[side], FETCHED_SIZE)
        bed.write(_keys(prefix, WARM_UP), FETCHED_SIZE)
        bed.flush(prefix)
    ways: Sequence[tuple[str, Callable[[str], float]]] = (
        ("one by one", lambda side: sum(bed.read(key, FETCHED_SIZE) for key in names[side])),
        ("prefetch", lambda side: bed.order("prefetch", f"{SIDES[side]}these/", "--wait")),
    )
    for side, prefix in SIDES.items():
        seconds: dict[str, list[float]] = {way: [] for way, _ in ways}
        asked: dict[str, Counter[str]] = {way: Counter() for way, _ in ways}
        for turn in range(bed.tier.options.rounds):
            for index in in_turn(len(ways), turn):
                way, fetch = ways[index]
                bed.empty(bed.far_url)
                for key in _keys(prefix, WARM_UP):
                    bed.read(key, FETCHED_SIZE)
                bed.counting.take_requests()
                seconds[way].append(fetch(side))
                asked[way] += bed.counting.take_requests()
        ratios = [one / all_ for one, all_ in zip(seconds["one by one"], seconds["prefetch"], strict=True)]
        total = bed.tier.options.rounds * count
        told = ", ".join(
            f"{way} {median(each):.1f} s, requests each {_each(asked[way], total)}" for way, each in seconds.items()
        )
        case = f"{count:,} cold {side} objects of 4 KiB, {LAKE_S * 1e3:.0f} ms away"
        goal = PREFETCH_GOAL if side == "packed" else None
        bed.page.add(Row(case, "time, one by one to prefetch", Spread.of(ratios), goal, told))


def requests(bed: _PackBed) -> None:
    """Counts requests while objects are written and flushed, half of them again, and a quarter is removed."""
    count = bed.tier.options.objects
    living = bed.tier.options.rounds * (count - count // 4)
    # One side after the other: nothing is timed, and the keeper's requests come late.
    for side, prefix in SIDES.items():
        bed.counting.take_requests()
        for turn in range(bed.tier.options.rounds):
            keys = _keys(f"{prefix}{turn}/", count)
            bed.write(keys, LIVING_SIZE)
            bed.flush(prefix)
            bed.write(keys[: count // 2], LIVING_SIZE)
            for key in keys[count // 2 : count * 3 // 4]:
                answer = send(bed.node.url, bed.tier.account, "DELETE", BUCKET, key)
                if answer.status != 204:
                    raise RuntimeError(f"{key} was not removed: {answer.status} {answer.body[:300]!r}")
            bed.flush(prefix)
        asked = _until_quiet(bed.counting) if prefix == PACKED else bed.counting.take_requests()
        case = f"{bed.tier.options.rounds} × {count:,} {side} objects of 4 KiB, half written twice, a quarter removed"
        goal = REQUESTS_GOAL if side == "packed" else None
        figure = Spread.of([100 * asked.total() / living])
        bed.page.add(Row(case, "requests for 100 that live", figure, goal, f"each: {_each(asked, living)}"))


PARTS: dict[str, Callable[[_PackBed], None]] = {
    "flush": flush,
    "read": reads,
    "prefetch": prefetch,
    "requests": requests,
}


def _in_turn(turn: int) -> list[tuple[str, str]]:
    """Returns names and prefixes of both sides, with a different one first in each turn."""
    sides = list(SIDES.items())
    return [sides[index] for index in in_turn(len(sides), turn)]


def _keys(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number:06}" for number in range(count)]


def _body(key: str, size: int) -> str:
    """Returns text that belongs to this key alone."""
    line = f"{key}\n"
    return (line * (size // len(line) + 1))[:size]


def _ratios(figures: dict[str, list[float]]) -> Spread:
    return Spread.of([packed / plain for packed, plain in zip(figures["packed"], figures["plain"], strict=True)])


def _each(requests: Counter[str], objects: int) -> str:
    """Returns the number of requests of each method for one object."""
    return ", ".join(f"{method} {count / objects:.4f}" for method, count in sorted(requests.items())) or "none"


def _until_quiet(counting: CountingRelay) -> Counter[str]:
    """Returns all requests until none has come for a while."""
    total: Counter[str] = Counter()
    quiet_since = time.monotonic()
    while time.monotonic() - quiet_since < QUIET_S:
        time.sleep(0.2)
        if came := counting.take_requests():
            total += came
            quiet_since = time.monotonic()
    return total


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m bench.tier.packs", description=__doc__)
    parser.add_argument("--shoal", type=Path, required=True, help="the binary, built with --release")
    parser.add_argument("--lake", choices=tuple(LAKES), default="minio", help="the lake (minio)")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds (3)")
    parser.add_argument("--objects", type=int, default=16_384, help="objects of a flush; others have fewer (16,384)")
    parser.add_argument("--only", choices=tuple(PARTS), action="append", help="one part; may be repeated")
    parser.add_argument("--results", type=Path, help="where the page is appended")
    arguments = parser.parse_args()
    if arguments.objects < 2 * CONNECTIONS:
        parser.error(f"--objects: at least {2 * CONNECTIONS}")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
