"""Writes that the lake has later: dissertation Fig. 6.2b."""

from __future__ import annotations

from net.cluster import BACK, Cluster, Shape
from net.fabric import Rates
from net.objects import whole

from .row import CLIENT_MBIT, LAKE_MBIT, MIB, NODE_MBIT, RACK_MBIT, Bed, Line, sound

_RATES = Rates(client=CLIENT_MBIT, node=NODE_MBIT, rack=RACK_MBIT, lake=LAKE_MBIT)
_OBJECT_BYTES = 4 * MIB
_LARGE_BYTES = 64 * MIB


# Objects over eight connections. Nothing hides what is left to do after the last bytes of the last ones: a short run
# shows the time of a write, a long one the rate of many.
_FEW, _MANY = 12, 48


def writing(bed: Bed) -> list[Line]:
    """Writes to the rack's own node in each mode, against writes to the lake; all are there in the end."""
    few, many, large, around, through = [], [], [], [], []
    with bed.cluster("writing", Shape(2, _RATES, written_back="1h")) as cluster:
        for turn in range(bed.rounds):
            lake = _seconds(cluster, f"lake-{turn}", _FEW // bed.haste)
            few.append(lake / _back(cluster, f"{BACK}few-{turn}", _FEW // bed.haste))
            direct = _seconds(cluster, f"around-{turn}", _FEW // bed.haste, "around")
            around.append(lake / direct)
            through.append(_seconds(cluster, f"through-{turn}", _FEW // bed.haste, "through") / direct)
            lake = _seconds(cluster, f"lake-many-{turn}", _MANY // bed.haste)
            many.append(lake / _back(cluster, f"{BACK}many-{turn}", _MANY // bed.haste))
            size = _LARGE_BYTES // bed.haste
            lake = _seconds(cluster, f"lake-large-{turn}", 1, size=size)
            large.append(lake / _back(cluster, f"{BACK}large-{turn}", 1, size))
    links = NODE_MBIT / LAKE_MBIT
    to_reach = f"{links:.0f}×, the links' ratio, less 5%"
    return [
        Line(f"write-back against the lake, {_FEW} objects", "3×", to_reach, few, "{:.2f}×", least=0.95 * links),
        Line(f"write-back against the lake, {_MANY} objects", "3×", to_reach, many, "{:.2f}×", least=0.95 * links),
        Line("write-back against the lake, one object of 64 MiB", "3×", to_reach, large, "{:.2f}×", least=0.95 * links),
        Line("write-around against the lake", "–", "–", around, "{:.2f}×"),
        Line("write-through: time against write-around", "~1.1", "≤ 1.05", through, most=1.05),
    ]


def _back(cluster: Cluster, name: str, count: int, size: int = _OBJECT_BYTES) -> float:
    """Seconds until all are acknowledged. The other node sees them at once, and the lake has them in the end."""
    seconds = _seconds(cluster, name, count, "back", size)
    reads = [whole(f"{name}-{number}", size) for number in range(count)]
    sound(cluster.read_through(2, reads))
    cluster.flush()
    sound(cluster.read_past(1, reads))
    return seconds


def _seconds(cluster: Cluster, name: str, count: int, mode: str | None = None, size: int = _OBJECT_BYTES) -> float:
    """Through the node of rack 1 in a mode; past it, over the same links, without one."""
    keys = [f"{name}-{number}" for number in range(count)]
    return cluster.write(1, keys, size, mode)
