"""The queries of TPC-H as DAGs of jobs that read the tables of a database, as Pig would run them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from net.objects import Read, ranges

# Bytes of the objects of a table, at most.
_OBJECT_BYTES = 1 << 20
# Bytes of the tables of TPC-H with scale factor 1.
TABLES = {
    "lineitem": 759_863_287,
    "orders": 171_952_161,
    "partsupp": 118_984_616,
    "customer": 24_346_144,
    "part": 24_135_125,
    "supplier": 1_409_184,
    "nation": 2_224,
    "region": 389,
}
# The joins of the 22 queries of TPC-H, each subquery with its own, in orders in which each table joins one before it.
QUERIES: dict[int, Sequence[str]] = {
    1: ["lineitem"],
    2: ["part partsupp supplier nation region", "partsupp supplier nation region"],
    3: ["customer orders lineitem"],
    4: ["orders lineitem"],
    5: ["customer orders lineitem supplier nation region"],
    6: ["lineitem"],
    7: ["supplier lineitem orders customer nation nation"],
    8: ["part lineitem supplier orders customer nation nation region"],
    9: ["part lineitem supplier partsupp orders nation"],
    10: ["customer orders lineitem nation"],
    11: ["partsupp supplier nation", "partsupp supplier nation"],
    12: ["orders lineitem"],
    13: ["customer orders"],
    14: ["lineitem part"],
    15: ["lineitem", "supplier"],
    16: ["partsupp part", "supplier"],
    17: ["lineitem part", "lineitem"],
    18: ["customer orders lineitem", "lineitem"],
    19: ["lineitem part"],
    20: ["partsupp part lineitem", "supplier nation"],
    21: ["supplier lineitem orders nation", "lineitem", "lineitem"],
    22: ["customer", "customer", "orders"],
}
# Published: a cache spares these jobs 31% of their time (6.6), and a hit takes a fifth of a read at the lake (7.1). So
# 0.31 / (1 - 1 / 5) = 39% of the time is reads at the lake, and 61% is computation.
COMPUTE_PER_READ = 0.61 / 0.39
# Of Facebook's jobs (6.1.2).
_BETWEEN_PER_INPUT = 1.5 / 8


@dataclass(frozen=True)
class Stage:
    """A join, or the last grouping of a job: the tables that it reads, and the stages whose results it reads."""

    name: str
    tables: Sequence[str]
    before: Sequence[str]


@dataclass(frozen=True)
class Job:
    """A query on a database, as levels of stages. The stages of a level run together."""

    name: str
    levels: Sequence[Sequence[Stage]]

    @property
    def tables(self) -> list[str]:
        """Returns the tables that the job reads, each as often as it does."""
        return [table for level in self.levels for stage in level for table in stage.tables]


@dataclass(frozen=True)
class Load:
    """The tables that a level reads, and the results that it reads and writes, with their bytes."""

    tables: Sequence[str]
    before: dict[str, int]
    results: dict[str, int]
    read_bytes: int


def dag(query: int, database: str) -> Job:
    """Makes each join a stage, as Pig does: the first one of a chain reads two tables, each other reads one more."""
    levels: list[list[Stage]] = []
    last: list[str] = []
    for number, chain in enumerate(QUERIES[query]):
        tables = [f"{database}/{table}" for table in chain.split()]
        before: list[str] = []
        for depth, read in enumerate([tables[:2], *([table] for table in tables[2:])]):
            stage = Stage(f"join-{number}-{depth}", read, before)
            levels += [[]] * (depth + 1 - len(levels))
            levels[depth] = [*levels[depth], stage]
            before = [stage.name]
        last += before
    return Job(f"q{query}/{database}", [*levels, [Stage("group", [], last)]])


def tables_of(databases: dict[str, int], least: int) -> dict[str, int]:
    """Returns the bytes of each table of databases of these bytes; a table has at least `least`."""
    whole = sum(TABLES.values())
    return {
        f"{database}/{table}": max(least, size * part // whole)
        for database, size in databases.items()
        for table, part in TABLES.items()
    }


def objects(folder: str, size: int, object_bytes: int = _OBJECT_BYTES) -> list[tuple[str, int]]:
    """Returns the objects below a folder with together so many bytes, and the bytes of each."""
    parts = range(0, size, object_bytes)
    return [(f"{folder}/part-{number}", min(object_bytes, size - at)) for number, at in enumerate(parts)]


def reads(found: Sequence[tuple[str, int]], request_bytes: int) -> list[Read]:
    """Returns the requests that read objects whole."""
    return [read for key, part in found for read in ranges(key, part, request_bytes)]


def loads(work: Job, sizes: dict[str, int]) -> list[Load]:
    """Returns what each level of a job reads and writes. The last one writes no result."""
    results: dict[str, int] = {}
    found = []
    for level in work.levels:
        tables = [table for stage in level for table in stage.tables]
        before = {name: results[name] for stage in level for name in stage.before}
        mine = {stage.name: _result(stage, sizes, results) for stage in level if level is not work.levels[-1]}
        results.update(mine)
        read_bytes = sum(sizes[table] for table in tables) + sum(before.values())
        found.append(Load(tables, before, mine, read_bytes))
    return found


def _result(stage: Stage, sizes: dict[str, int], results: dict[str, int]) -> int:
    read = sum(sizes[table] for table in stage.tables) + sum(results[name] for name in stage.before)
    return max(1, int(read * _BETWEEN_PER_INPUT))
