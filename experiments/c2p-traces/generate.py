"""Writes the traces that are made up into a folder: generate.py FOLDER.

Objects have 1 to 64 blocks of 4 MiB, as many of one size as of half of it. A line is one read; four clients take turns.
"""

from __future__ import annotations

import csv
import itertools
import math
import random
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

BLOCK, BLOCKS_MAX = 4 << 20, 64
OBJECTS, READS, CLIENTS = 600, 8_000, 4
Read = tuple[int, int, int]


def sizes() -> list[int]:
    """Blocks of each object."""
    chance = random.Random(1)
    return [round(math.exp(chance.uniform(0, math.log(BLOCKS_MAX)))) for _ in range(OBJECTS)]


def zipf(seed: int, exponent: float = 0.9) -> list[int]:
    """Number k, counted from 1, in proportion to k^-exponent."""
    weights = itertools.accumulate((k + 1) ** -exponent for k in range(OBJECTS))
    return random.Random(seed).choices(range(OBJECTS), cum_weights=list(weights), k=READS)


def whole(objects: Iterable[int], blocks: list[int]) -> Iterator[Read]:
    """Every object from its first block to its last."""
    for number in objects:
        yield number, 0, blocks[number]


def moving(seed: int) -> Iterator[int]:
    """Nine tenths of the reads go to a tenth of the objects, another one after each tenth of them."""
    chance = random.Random(seed)
    for number in range(READS):
        first = number * 10 // READS * (OBJECTS // 10)
        hot = chance.random() < 0.9
        yield (first + chance.randrange(OBJECTS // 10)) % OBJECTS if hot else chance.randrange(OBJECTS)


def ranges(objects: Iterable[int], blocks: list[int]) -> Iterator[Read]:
    """As columns of a table are read: a third of each object, always the same one, in which place by chance."""
    chance = random.Random(5)
    parts = {}
    for number in objects:
        wanted = max(1, blocks[number] // 3)
        parts.setdefault(number, chance.randrange(blocks[number] - wanted + 1))
        yield number, parts[number], wanted


def mixed(objects: Iterable[int], blocks: list[int]) -> Iterator[Read]:
    """One read in ten is of a whole object, the others of its third."""
    chance = random.Random(6)
    for number, first, wanted in ranges(objects, blocks):
        yield (number, 0, blocks[number]) if chance.random() < 0.1 else (number, first, wanted)


def write(path: Path, reads: Iterable[Read], blocks: list[int]) -> None:
    """Writes reads as the simulator reads them."""
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["client", "object", "offset_bytes", "bytes", "object_bytes"])
        for turn, (number, first, wanted) in enumerate(reads):
            table.writerow([turn % CLIENTS, number, first * BLOCK, wanted * BLOCK, blocks[number] * BLOCK])


def main() -> None:
    """Generates all of them."""
    folder, blocks = Path(sys.argv[1]), sizes()
    write(folder / "whole.csv", whole(zipf(2), blocks), blocks)
    write(folder / "moving.csv", whole(moving(3), blocks), blocks)
    write(folder / "ranges.csv", ranges(zipf(4), blocks), blocks)
    write(folder / "mixed.csv", mixed(zipf(4), blocks), blocks)


if __name__ == "__main__":
    main()
