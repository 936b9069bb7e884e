"""Writes the traces that are made up into a folder: generate.py FOLDER.

Every request is for a block of one size: a million to 50,000 blocks, or to files of 64 blocks that are read whole.
"""

import itertools
import random
import struct
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

BLOCKS = 50_000
REQUESTS = 1_000_000
FILES = 800
FILE_BYTES = 64 * 4 << 20


def zipf(count: int, exponent: float, requests: int, seed: int) -> list[int]:
    """Number k, counted from 1, in proportion to k^-exponent."""
    weights = itertools.accumulate((k + 1) ** -exponent for k in range(count))
    return random.Random(seed).choices(range(count), cum_weights=list(weights), k=requests)


def scans(blocks: Iterable[int]) -> Iterator[int]:
    """A block that never comes again after every fourth request."""
    for number, block in enumerate(blocks):
        yield block
        if number % 4 == 3:
            yield BLOCKS + number


def hot_set() -> Iterator[int]:
    """Nine tenths of the requests go to a twentieth of the blocks, another one after each twentieth of them."""
    chance = random.Random(2)
    for number in range(REQUESTS):
        first = number * 20 // REQUESTS * 2_500
        hot = chance.random() < 0.9
        yield (first + chance.randrange(2_500)) % BLOCKS if hot else chance.randrange(BLOCKS)


def write(path: Path, blocks: Iterable[int]) -> None:
    """Writes blocks in libCacheSim's format oracleGeneral."""
    path.write_bytes(b"".join(struct.pack("<IQIq", 0, block, 1, 0) for block in blocks))


def main() -> None:
    """Generates all of them."""
    folder = Path(sys.argv[1])
    write(folder / "uniform.oracleGeneral", zipf(BLOCKS, 0.0, REQUESTS, 1))
    for exponent in (0.6, 0.9, 1.2):
        write(folder / f"zipf-{exponent}.oracleGeneral", zipf(BLOCKS, exponent, REQUESTS, 1))
    write(folder / "zipf-0.9-scans.oracleGeneral", scans(zipf(BLOCKS, 0.9, REQUESTS, 1)))
    write(folder / "hot-set.oracleGeneral", hot_set())
    lines = [f"f{file},{FILE_BYTES}\n" for file in zipf(FILES, 0.9, 16_000, 3)]
    (folder / "files.csv").write_text("object,bytes\n" + "".join(lines))


if __name__ == "__main__":
    main()
