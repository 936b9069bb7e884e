"""Times of small writes: dissertation Fig. 6.4b with objects of 4 KiB to 1 MiB in place of 128 MB."""

from __future__ import annotations

import json
from collections.abc import Sequence
from statistics import quantiles

from net.cluster import BACK, BUCKET, Cluster, Remote, Shape
from net.fabric import Rates

from .replay import Replay, Replayed, Step
from .row import CLIENT_MBIT, LAKE_MBIT, MIB, NODE_MBIT, RACK_MBIT, Bed, Line
from .small_writes import tables

_RATES = Rates(client=CLIENT_MBIT, node=NODE_MBIT, rack=RACK_MBIT, lake=LAKE_MBIT)
_KIB = 1 << 10
_SIZES = {"4 KiB": 4 * _KIB, "16 KiB": 16 * _KIB, "64 KiB": 64 * _KIB, "1 MiB": MIB}
_WRITES = 100
# One after the other: the time of a write, not the rate of many. The first ones open connections, and ask the lake for
# its permission, which a node then remembers for longer than any run.
_FIRST = 4
_PERMISSION, _AGE_S = "10m", 3600
_LAKE, _AROUND, _THROUGH, _BACK = "lake", "around", "through", "back"
_FOLDER, _STORE = "a folder", "a store and an etcd of three"
_PERCENTS = (50, 99)

_Took = dict[tuple[str, str], list[Sequence[float]]]


def small_latency(bed: Bed) -> list[Line]:
    """Measures writes to the lake, around, through, and into both kinds of a tier."""
    store = Shape(1, _RATES, solo=[1], written_back=f"{_AGE_S}s", permission=_PERMISSION)
    in_folder = tables(bed.folder / "small-latency-tier", _AGE_S, permission=_PERMISSION)
    folder = Shape(1, _RATES, solo=[1], tables=in_folder)
    lines = []
    for where, shape, modes in (
        (_STORE, store, (_LAKE, _AROUND, _THROUGH, _BACK)),
        (_FOLDER, folder, (_LAKE, _BACK)),
    ):
        took: _Took = {}
        with bed.cluster(f"small-latency-{where.split()[1]}", shape) as cluster:
            for turn in range(bed.rounds):
                for size in _SIZES:
                    first = turn % len(modes)
                    for mode in (*modes[first:], *modes[:first]):
                        took.setdefault((size, mode), []).append(_write(cluster, size, mode, (turn, bed.haste)))
        lines += _lines(where, took)
    return lines


def _lines(where: str, took: _Took) -> list[Line]:
    lines = []
    for (size, mode), runs in took.items():
        name = f"into {where}" if mode == _BACK else f"{mode} (beside {where})"
        for percent in _PERCENTS:
            each = [_percentile(run, percent) for run in runs]
            lines.append(Line(f"a write of {size}, {name}: p{percent}, ms", "–", "–", each, "{:.2f}"))
            if mode == _BACK:
                direct = [_percentile(run, percent) for run in took[size, _LAKE]]
                ratios = [lake / mine for lake, mine in zip(direct, each, strict=True)]
                what = f"a write of {size} {name} against the lake, p{percent}"
                lines.append(Line(what, "2.6× of 128 MB", "≥ 1×", ratios, "{:.2f}×", least=1.0))
    return lines


def _write(cluster: Cluster, size: str, mode: str, turn_and_haste: Sequence[int]) -> Sequence[float]:
    """Returns the milliseconds of each write."""
    turn, haste = turn_and_haste
    prefix = BACK if mode == _BACK else "small/"
    keys = (f"{prefix}{size}-{mode}-{turn}-{number}" for number in range(_FIRST + _WRITES // haste))
    steps = [Step(0, "PUT", key.replace(" ", ""), _SIZES[size]) for key in keys]
    url, named = (cluster.lake.url, "") if mode == _LAKE else (cluster.nodes[1].url, mode)
    account = cluster.lake.account
    plan = Replay(url, account.access_key, account.secret_key, BUCKET, steps, 1, named)
    client = Remote(1, "testbed.replay", plan.to_json())
    client.go()
    return [1e3 * seconds for seconds in Replayed(**json.loads(client.last_line())).seconds[_FIRST:]]


def _percentile(values: Sequence[float], percent: int) -> float:
    return quantiles(values, n=100, method="inclusive")[percent - 1]
