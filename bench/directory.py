"""Measures the directory of blocks in Redis: `PYTHONPATH=tests python3 -m bench.directory [--blocks N]`.

Runs the product's own scripts in a Redis on loopback: bytes of memory for each block, and processor time and rate of
looks, reports and departures. Then the processor time of a node whose blocks come and go.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from real.processes import Process, free_port
from real.scratch import scratch

from bench.process_facts import cpu_seconds

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "crates/shoal-directory/src/redis/scripts"
GROUP_BLOCKS, HOLDERS_MAX = 32, 32
LIFE_MS, CLAIM_MS = 3_600_000, 10_000
# Blocks that come and go at a node, each second, and how long they do.
EVENTS, COST_S = 5_000, 10
# The blocks that a response looks for at once when it begins.
AHEAD = 5
# Requests on their way at a time.
WINDOW = 200

Command = Sequence[bytes]


class Redis:
    """One connection to a server that the block starts."""

    def __init__(self, folder: Path) -> None:
        self._port = free_port()
        self._process = Process(
            ["redis-server", "--bind", "127.0.0.1", "--port", str(self._port), "--save", "", "--dir", str(folder)],
            folder / "redis.log",
        )

    def __enter__(self) -> Redis:
        self._process.wait_until(self._listens, 10)
        self._connection = socket.create_connection(("127.0.0.1", self._port))
        self._answers = self._connection.makefile("rb")
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._process.stop()

    def all(self, commands: Iterator[Command]) -> int:
        """Sends commands, a window of them at a time; returns their number."""
        count = 0
        while window := [command for command, _ in zip(commands, range(WINDOW), strict=False)]:
            self._connection.sendall(b"".join(_encoded(command) for command in window))
            for _ in window:
                self._answer()
            count += len(window)
        return count

    @property
    def url(self) -> str:
        """Returns the address for a node."""
        return f"redis://127.0.0.1:{self._port}"

    def ask(self, *words: str) -> bytes:
        """Returns the answer to one command."""
        self._connection.sendall(_encoded([word.encode() for word in words]))
        return self._answer()

    def load(self, name: str) -> bytes:
        """Loads a script as the product does; returns its name at the server."""
        text = (SCRIPTS / "entries.lua").read_text() + (SCRIPTS / f"{name}.lua").read_text()
        return self.ask("SCRIPT", "LOAD", text)

    def used_bytes(self) -> int:
        """Returns the memory of all entries and of the server itself."""
        facts = dict(line.split(":", 1) for line in self.ask("INFO", "memory").decode().splitlines() if ":" in line)
        return int(facts["used_memory"])

    def timed(self, commands: Iterator[Command]) -> tuple[float, float]:
        """Runs commands; returns microseconds of the server's processor for each, and requests a second."""
        before, began = cpu_seconds([self._process.pid]), time.monotonic()
        count = self.all(commands)
        taken = cpu_seconds([self._process.pid]) - before
        return taken / count * 1e6, count / (time.monotonic() - began)

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), 1).close()
        except OSError:
            return False
        return True

    def _answer(self) -> bytes:
        line = self._answers.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b"$":
            return self._answers.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return b" ".join(self._answer() for _ in range(int(rest)))
        return rest


def main() -> int:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(prog="python3 -m bench.directory", description=__doc__)
    parser.add_argument("--blocks", type=int, default=1_000_000, help="entries of each case (1,000,000)")
    blocks = parser.parse_args().blocks
    if shutil.which("redis-server") is None:
        print("skipped: redis-server is not installed")
        return 0
    print("| case | bytes a block | µs of processor a request | requests a second |\n|---|---|---|---|")
    for in_object, holders in ((GROUP_BLOCKS, 1), (GROUP_BLOCKS, 4), (1, 1), (1, 4)):
        with scratch("shoal-directory-bench-") as folder, Redis(folder) as redis:
            measure(redis, blocks, in_object, holders)
    print(f"\nA node at which {EVENTS:,} blocks come and go each second, with Redis on the same machine:\n")
    for in_object in (GROUP_BLOCKS, 1):
        with scratch("shoal-directory-bench-") as folder, Redis(folder) as redis:
            print(f"- {in_object} blocks an object: {cost(redis, in_object)}", flush=True)
    return 0


def cost(redis: Redis, in_object: int) -> str:
    """Returns the processor time of a node that reports blocks of objects of this many blocks."""
    example = ["cargo", "run", "--release", "--locked", "-q", "-p", "shoal-directory", "--example", "cost", "--"]
    command = [*example, redis.url, str(EVENTS), str(in_object), str(COST_S)]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def measure(redis: Redis, blocks: int, in_object: int, holders: int) -> None:
    """Enters blocks of objects of this many blocks, each held by this many nodes; looks for some that nobody holds."""
    held, locate = redis.load("held"), redis.load("locate")
    empty, objects = redis.used_bytes(), blocks // in_object
    cpu, rate = redis.timed(reports(held, objects, in_object, holders))
    each = (redis.used_bytes() - empty) / (objects * in_object)
    case = f"{in_object} blocks an object, {holders} holders"
    print(f"| report: {case} | {each:.0f} | {cpu:.1f} | {rate:,.0f} |")
    cpu, rate = redis.timed(uses(redis.load("used"), objects, in_object))
    each = (redis.used_bytes() - empty) / (objects * in_object)
    print(f"| use of all blocks: {case} | {each:.0f} | {cpu:.1f} | {rate:,.0f} |")
    cpu, rate = redis.timed(looks(locate, objects, in_object))
    print(f"| look for a held block: {case} | | {cpu:.1f} | {rate:,.0f} |")
    if in_object >= AHEAD:
        cpu, rate = redis.timed(looks(locate, objects, in_object, at_once=AHEAD))
        print(f"| look for {AHEAD} held blocks at once: {case} | | {cpu:.1f} | {rate:,.0f} |")
    cpu, rate = redis.timed(looks(locate, 100_000, 1, b"missing"))
    print(f"| look for a block that no node holds: {case} | | {cpu:.1f} | {rate:,.0f} |")
    cpu, rate = redis.timed(departures(redis.load("leave"), objects, in_object))
    print(f"| departure of all blocks: {case} | | {cpu:.1f} | {rate:,.0f} |", flush=True)


def reports(script: bytes, objects: int, in_object: int, holders: int) -> Iterator[Command]:
    """Yields the reports of each node that holds the blocks."""
    indexes = [str(index).encode() for index in range(in_object)]
    for node in range(holders):
        for number in range(objects):
            head = [b"EVALSHA", script, b"1", _key(number)]
            yield [*head, _node(node), str(HOLDERS_MAX).encode(), str(LIFE_MS).encode(), *indexes]


def uses(script: bytes, objects: int, in_object: int) -> Iterator[Command]:
    """Yields a use of each block."""
    words = [word for index in range(in_object) for word in (str(index).encode(), b"1")]
    for number in range(objects):
        yield [b"EVALSHA", script, b"1", _key(number), *words]


def departures(script: bytes, objects: int, in_object: int) -> Iterator[Command]:
    """Yields the question of the first node about all blocks, each with a weight of 3."""
    words = [word for index in range(in_object) for word in (str(index).encode(), b"3")]
    for number in range(objects):
        yield [b"EVALSHA", script, b"1", _key(number), _node(0), *words]


def looks(script: bytes, objects: int, in_object: int, kind: bytes = b"", at_once: int = 1) -> Iterator[Command]:
    """Yields a look of another node at some blocks of each object."""
    for number in range(objects):
        indexes = [str((number + block) % in_object).encode() for block in range(at_once)]
        head = [b"EVALSHA", script, b"1", _key(number, kind)]
        yield [*head, _node(99), str(CLAIM_MS).encode(), str(LIFE_MS).encode(), b"0", *indexes]


def _key(number: int, kind: bytes = b"") -> bytes:
    version = hashlib.md5(kind + str(number).encode(), usedforsecurity=False).hexdigest()
    return f"shoal:b:{version}:0".encode()


def _node(number: int) -> bytes:
    return hashlib.md5(str(number).encode(), usedforsecurity=False).digest()[:8]


def _encoded(words: Command) -> bytes:
    parts = [b"*%d\r\n" % len(words), *(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)]
    return b"".join(parts)


if __name__ == "__main__":
    sys.exit(main())
