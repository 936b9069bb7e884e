"""Converts published recordings into forms that the simulator reads: convert.py TRACES FOLDER.

README.md lists the contents of TRACES.
"""

import csv
import gzip
import itertools
import json
import lzma
import random
import struct
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

CDN_REQUESTS = 5_000_000


def general(path: Path, requests: Iterable[tuple[int, int]]) -> None:
    """Writes objects with their sizes in libCacheSim's format oracleGeneral."""
    path.write_bytes(b"".join(struct.pack("<IQIq", 0, name, size, 0) for name, size in requests))


def storage_blocks(traces: Path) -> Iterator[tuple[int, int]]:
    """CloudPhysics' numbers of blocks, each of one byte."""
    data = lzma.decompress((traces / "cloudphysics/w106.trace.xz").read_bytes())
    return ((name, 1) for (name,) in struct.iter_unpack("<I", data))


def cdn(traces: Path) -> Iterator[tuple[int, int]]:
    """Requests drawn from CacheLib's distributions: buckets of equally popular keys, sizes independent of them."""
    chance = random.Random(1)
    popularity = json.loads((traces / "cachelib/cdn_pop.json").read_text())
    sizes = json.loads((traces / "cachelib/cdn_sizes.json").read_text())
    weights = list(itertools.accumulate(sizes["valSizeRangeProbability"]))
    buckets = popularity["popularityBuckets"]
    first = list(itertools.accumulate([0, *buckets]))
    nameless = itertools.count(first[-1])
    known = {}
    for bucket in chance.choices(range(len(buckets)), weights=popularity["popularityWeights"], k=CDN_REQUESTS):
        once = chance.random() < popularity["oneHits"]
        name = next(nameless) if once else first[bucket] + chance.randrange(buckets[bucket])
        if name not in known:
            known[name] = chance.choices(sizes["valSizeRange"], cum_weights=weights)[0]
        yield name, known[name]


def tectonic(source: Path, target: Path) -> None:
    """Converts Meta's reads and writes of blocks. An operation is about a piece of a block."""
    with source.open() as rows, target.open("w") as lines:
        lines.write("time_s,object,offset_bytes,bytes,operation\n")
        for row in csv.DictReader(rows):
            operation = "read" if "get" in row["op_name"].lower() else "write"
            piece = f"{row['io_offset']},{row['io_size']}"
            lines.write(f"{row['op_time']},{row['block_id']},{piece},{operation}\n")


def main() -> None:
    """Converts all of them."""
    traces, folder = Path(sys.argv[1]), Path(sys.argv[2])
    general(folder / "w106.oracleGeneral", storage_blocks(traces))
    general(folder / "cdn.oracleGeneral", cdn(traces))
    for number in (1, 2):
        tectonic(traces / f"cachelib/block_traces_{number}.csv", folder / f"tectonic-{number}.csv")
    for packed in sorted((traces / "wfinstances").glob("*.json.gz")):
        (folder / packed.stem).write_bytes(gzip.decompress(packed.read_bytes()))


if __name__ == "__main__":
    main()
