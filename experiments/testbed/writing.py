"""Writes that the lake has later: dissertation Figs. 6.2b and 6.4b."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from net.cluster import BACK, Cluster, Shape
from net.fabric import Rates
from net.objects import whole

from .row import CLIENT_MBIT, LAKE_MBIT, MIB, NODE_MBIT, RACK_MBIT, Bed, Line, sound

_RATES = Rates(client=CLIENT_MBIT, node=NODE_MBIT, rack=RACK_MBIT, lake=LAKE_MBIT)
_OBJECT_BYTES = 4 * MIB
_LARGE_BYTES = 64 * MIB
# The rate of rack 1's lake link while nothing is timed: the node flushes the objects to the lake, and the row
# compares them there.
_UNTIMED_MBIT = 1000
# The number of objects, over eight connections. No other write overlaps with the work that follows the last
# bytes of the last objects: a short run shows the time of a write, a long run the rate of many.
_FEW, _MANY = 8, 32


def writing(bed: Bed) -> list[Line]:
    """Measures writes to the rack's own node in each mode against writes to the lake, and checks that all are there."""
    few, many, large, around, through, sent = [], [], [], [], [], []
    with bed.cluster("writing", Shape(2, _RATES, written_back="1h")) as cluster:
        for turn in range(bed.rounds):
            lake = _seconds(cluster, f"lake-{turn}", _FEW // bed.haste)
            few.append(lake / _back(cluster, f"{BACK}few-{turn}", _FEW // bed.haste)[0])
            direct = _seconds(cluster, f"around-{turn}", _FEW // bed.haste, "around")
            around.append(lake / direct)
            through.append(_seconds(cluster, f"through-{turn}", _FEW // bed.haste, "through") / direct)
            lake = _seconds(cluster, f"lake-many-{turn}", _MANY // bed.haste)
            back, per_byte = _back(cluster, f"{BACK}many-{turn}", _MANY // bed.haste)
            many.append(lake / back)
            sent.append(per_byte)
            size = _LARGE_BYTES // bed.haste
            lake = _seconds(cluster, f"lake-large-{turn}", 1, size=size)
            large.append(lake / _back(cluster, f"{BACK}large-{turn}", 1, size)[0])
    links = NODE_MBIT / LAKE_MBIT
    to_reach = f"{links:.0f}×, the links' ratio, less 5%"
    tier = "write into the tier against the lake"
    return [
        Line(f"{tier}, {_FEW} objects", "2.6×", to_reach, few, "{:.2f}×", least=0.95 * links),
        Line(f"{tier}, {_MANY} objects", "2.6×", to_reach, many, "{:.2f}×", least=0.95 * links),
        Line(f"{tier}, one object of 64 MiB", "2.6×", to_reach, large, "{:.2f}×", least=0.95 * links),
        Line("bytes that the node sends into its rack meanwhile, for each byte written", "–", "–", sent),
        Line("write-around against the lake", "–", "–", around, "{:.2f}×"),
        Line("write-through: time against write-around", "~1.1", "≤ 1.05", through, most=1.05),
    ]


def _back(cluster: Cluster, name: str, count: int, size: int = _OBJECT_BYTES) -> tuple[float, float]:
    """Returns the seconds until all writes are acknowledged, and the bytes sent into the rack for each of theirs.

    The other node sees them at once, and the lake has them in the end.
    """
    before = cluster.fabric.node_bytes(1)
    seconds = _seconds(cluster, name, count, "back", size)
    sent = cluster.fabric.node_bytes(1) - before
    reads = [whole(f"{name}-{number}", size) for number in range(count)]
    sound(cluster.read_through(2, reads))
    with _untimed(cluster):
        cluster.flush()
        sound(cluster.read_past(1, reads))
    return seconds, sent / (count * size)


@contextmanager
def _untimed(cluster: Cluster) -> Iterator[None]:
    """Widens the lake link of rack 1 for steps that the row does not measure."""
    cluster.fabric.shape("lake-1", _UNTIMED_MBIT)
    yield
    cluster.fabric.shape("lake-1", LAKE_MBIT)


def _seconds(cluster: Cluster, name: str, count: int, mode: str | None = None, size: int = _OBJECT_BYTES) -> float:
    """Returns the seconds of writes through the node of rack 1 in a mode; without one, past it on the same links."""
    keys = [f"{name}-{number}" for number in range(count)]
    return cluster.write(1, keys, size, mode)
