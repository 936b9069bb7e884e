"""Writes that the lake has later: dissertation Fig. 6.2b."""

from __future__ import annotations

from net.cluster import WRITTEN_BACK, Cluster, Shape
from net.fabric import Rates
from net.objects import whole

from .row import CLIENT_MBIT, LAKE_MBIT, MIB, NODE_MBIT, RACK_MBIT, Bed, Line, sound

_RATES = Rates(client=CLIENT_MBIT, node=NODE_MBIT, rack=RACK_MBIT, lake=LAKE_MBIT)
_OBJECT_BYTES = 4 * MIB


def writing(bed: Bed) -> list[Line]:
    """Writes to the rack's own node, back and around, against writes to the lake; all are there in the end."""
    back, around = [], []
    with bed.cluster("writing", Shape(2, _RATES, tables=WRITTEN_BACK)) as cluster:
        for turn in range(bed.rounds):
            count = max(1, 48 * MIB // bed.haste // _OBJECT_BYTES)
            lake = _seconds(cluster, f"lake-{turn}", count)
            back.append(lake / _seconds(cluster, f"back-{turn}", count, "back"))
            around.append(lake / _seconds(cluster, f"around-{turn}", count, "around"))
            reads = [whole(f"back-{turn}-{number}", _OBJECT_BYTES) for number in range(count)]
            sound(cluster.read_through(2, reads))
            cluster.flush()
            sound(cluster.read_past(1, reads))
    links = NODE_MBIT / LAKE_MBIT
    return [
        Line(
            "write-back against the lake",
            "3×",
            f"{links:.0f}×, the links' ratio, less 5%",
            back,
            "{:.2f}×",
            least=0.95 * links,
        ),
        Line("write-around against the lake", "–", "–", around, "{:.2f}×"),
    ]


def _seconds(cluster: Cluster, name: str, count: int, mode: str | None = None) -> float:
    """Through the node of rack 1 in a mode; past it, over the same links, without one."""
    keys = [f"{name}-{number}" for number in range(count)]
    return cluster.write(1, keys, _OBJECT_BYTES, mode)
