"""A scenario while clients read, from an experiment of the simulator; the live run takes its links, rooms and times."""

from __future__ import annotations

import csv
import random
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from net.cluster import Shape
from net.fabric import Rates
from net.objects import Read, ranges

from .jobs import jobs, sizes

_FOLDER = Path(__file__).parent / "adaptation"
# Where each rack reads blocks by chance: how many objects, how long, and how often as much as all of them.
_OBJECTS, _OBJECT_BLOCKS, _TIMES = 45, 16, 4
_BLOCK_BYTES = 256 << 10
_MOMENT = re.compile(r'^at = "(\d+)s"', re.MULTILINE)


@dataclass(frozen=True)
class Change:
    """Another rate for a rack's lake link, or demand that moves from one rack to another."""

    at_s: float
    rack: int
    lake_mbit: int | None = None
    moves_to: int | None = None


@dataclass(frozen=True)
class Scenario:
    """The experiment as text and as settings, and each rack's reads in order; a read is one block."""

    experiment: str
    settings: dict[str, Any]
    reads: dict[int, Sequence[Read]]

    @property
    def sample_s(self) -> float:
        """Returns the seconds between two samples of the layers' rooms."""
        return _number(self.settings["measure"]["sample"], "s")

    @property
    def changes(self) -> list[Change]:
        """Returns the changes in the order in which they happen."""
        links = [
            Change(_number(each["at"], "s"), each["node"] + 1, lake_mbit=_number(each["rate"], "Mbit/s"))
            for each in self.settings.get("change", [])
        ]
        moves = [
            Change(_number(each["at"], "s"), each["from"] + 1, moves_to=each["to"] + 1)
            for each in self.settings.get("move", [])
        ]
        return sorted([*links, *moves], key=lambda change: change.at_s)

    def shape(self, split: Sequence[int]) -> Shape:
        """Returns the live cluster. The simulator's peer links are those of racks; node links have no rate limit."""
        cluster, links = self.settings["cluster"], self.settings["links"]
        rates = Rates(
            client=_number(links["client"], "Mbit/s"),
            rack=_number(links["peer"], "Mbit/s"),
            lake=_number(links["lake"], "Mbit/s"),
        )
        return Shape(
            cluster["nodes"],
            rates,
            capacity=cluster["capacity"],
            block_size=cluster["block"],
            # The simulator does not check whether an object is current.
            freshness="immutable",
            split=split,
            period=self.settings["grid"]["variant"][0].get("cluster", {}).get("adapt_every", "90s"),
        )

    @property
    def connections(self) -> int:
        """Returns the number of blocks that the clients of a rack wait for at a time."""
        requests: int = self.settings["clients"]["requests"]
        return requests

    def write(self, folder: Path) -> Path:
        """Writes the experiment with its trace for `shoal-lab simulate`, and returns its path."""
        folder.mkdir(parents=True)
        with (folder / self.settings["workload"]["source"]["path"]).open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["client", "object", "offset_bytes", "bytes", "object_bytes"])
            longest = max(len(reads) for reads in self.reads.values())
            for turn in range(longest):
                for rack, reads in self.reads.items():
                    for read in reads[turn : turn + 1]:
                        table.writerow([rack, read.key, read.first, read.length, read.size])
        path = folder / "EXPERIMENT.toml"
        path.write_text(self.experiment)
        return path


def moves(haste: int) -> Scenario:
    """Facebook's jobs, all read in rack 1, and from some moment on in rack 4."""
    trace = jobs(haste)
    lengths = sizes(trace)
    blocks = [block for job in trace for block in ranges(job.path, job.input_bytes, _BLOCK_BYTES)]
    return scenario(_FOLDER / "moves.toml", haste, {1: [replace(block, size=lengths[block.key]) for block in blocks]})


def congested(haste: int) -> Scenario:
    """Any blocks, read in all racks, of more objects than all nodes have room for."""
    objects = [f"any-{number}" for number in range(_OBJECTS)]
    blocks = [block for key in objects for block in ranges(key, _OBJECT_BLOCKS * _BLOCK_BYTES, _BLOCK_BYTES)]
    count = _TIMES * len(blocks) // haste
    reads = {rack: random.Random(rack).choices(blocks, k=count) for rack in range(1, 5)}
    return scenario(_FOLDER / "congested.toml", haste, reads)


def scenario(path: Path, haste: int, reads: dict[int, Sequence[Read]]) -> Scenario:
    """Reads a scenario from its file; `haste` divides its moments."""
    text = path.read_text()
    text = _MOMENT.sub(lambda moment: f'at = "{int(moment[1]) // haste}s"', text)
    return Scenario(text, tomllib.loads(text), reads)


def _number(written: str, unit: str) -> int:
    """Returns the number in front of a unit. The text must have this unit."""
    if not written.endswith(unit):
        raise ValueError(f"{written} should be written in {unit}")
    return int(written.removesuffix(unit))
