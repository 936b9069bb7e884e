"""Writes into an erasure-coded tier against writes into one of three copies: dissertation Fig. 6.4b."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack

from net.cluster import BACK, BUCKET, LAKES
from net.fabric import DiskLinks
from net.writer import Writes
from real import tier
from real.etcd import Etcd
from real.lakes import Classes, Lake
from real.lakes.base import TIER_DISKS
from real.lakes.ceph import CephTier, Network
from real.lakes.minio import MinioTier
from real.node import Node
from real.processes import await_that
from real.wire import send

from .row import MIB, NODE_MBIT, Bed, Line

# "The 10 Gbit/s per-cache bandwidth to all other caches" (6.3.2), two hundredths of it.
_BETWEEN_MBIT = 50
_OBJECT_BYTES, _OBJECTS = 4 * MIB, 24
# The primary has the object; five shards of a quarter each leave it, or two copies.
_CODED_SENT, _COPIED_SENT = 1.25, 2.0
# Ceph counts the bytes on disks every few seconds.
_COUNTED_S = 15
_CODED, _COPIED = "coded", "copied"


def erasure(bed: Bed) -> list[Line]:
    """Writes the same objects in turn as four data and two parity shards, and in three copies; measures their bytes."""
    with ExitStack() as stack:
        links = DiskLinks(TIER_DISKS, NODE_MBIT, _BETWEEN_MBIT)
        stack.callback(links.remove)
        ceph = stack.enter_context(
            CephTier(bed.folder / "ceph", Network(links.ADDRESS, links.PUBLIC, links.BETWEEN, links.within))
        )
        lake = stack.enter_context(LAKES[bed.lake](bed.folder / "lake", ()))
        etcd = stack.enter_context(Etcd(bed.folder / "etcd"))
        tier.prepare(ceph.lake)
        await_that("the lake has a bucket", lambda: send(lake.url, lake.account, "PUT", BUCKET).status == 200)
        classes = {_CODED: ceph.classes, _COPIED: Classes(ceph.classes.small, ceph.classes.small)}
        nodes = {
            name: stack.enter_context(_node(bed, (lake, ceph.lake), etcd, name, which))
            for name, which in classes.items()
        }
        rates: dict[str, list[float]] = {name: [] for name in nodes}
        sent: dict[str, list[float]] = {name: [] for name in nodes}
        count = _OBJECTS // bed.haste
        size = count * _OBJECT_BYTES
        # The first writes make pools and connections.
        for turn in range(bed.rounds + 1):
            for name in (*nodes,) if turn % 2 else (*reversed(nodes),):
                before = links.between_bytes()
                took = _write(lake, nodes[name], f"{BACK}{name}-{turn}", count)
                if turn:
                    rates[name].append(size * 8e-6 / took)
                    sent[name].append((links.between_bytes() - before) / size)
        time.sleep(_COUNTED_S)
        coded_bytes, copied_bytes = (used / size / (bed.rounds + 1) for used in ceph.disk_bytes())
        return [
            *_times(rates, sent),
            _on_disk("Ceph, EC 4+2", coded_bytes, 1.5),
            _on_disk("Ceph, three copies", copied_bytes, 3.0),
            _on_disk("MinIO, EC:2 on six drives", _minio(bed, lake, etcd), 1.5),
        ]


def _times(rates: dict[str, list[float]], sent: dict[str, list[float]]) -> Sequence[Line]:
    ratio = _COPIED_SENT / _CODED_SENT
    ratios = [coded / copied for coded, copied in zip(rates[_CODED], rates[_COPIED], strict=True)]
    to_reach = f"{ratio:.1f}×, what leaves the primaries"
    return [
        Line("write into a tier of three copies against EC 4+2, time", "1.6×", to_reach, ratios, "{:.2f}×", least=1.6),
        *(Line(f"write into the tier, {name}: Mbit/s", "–", "–", rates[name], "{:.0f}") for name in (_CODED, _COPIED)),
        *(
            Line(f"bytes between the disks for each byte, {name}", "–", f"{bound}", sent[name])
            for name, bound in ((_CODED, _CODED_SENT), (_COPIED, _COPIED_SENT))
        ),
    ]


def _on_disk(what: str, value: float, expected: float) -> Line:
    return Line(
        f"bytes on disk for each byte, {what}",
        f"{expected}×",
        f"{expected}×",
        [value],
        "{:.2f}×",
        least=0.98 * expected,
        most=1.05 * expected,
    )


def _node(bed: Bed, stores: tuple[Lake, Lake], etcd: Etcd, name: str, classes: Classes) -> Node:
    """Returns a solo node in front of the lake that flushes nothing during the measurement."""
    lake, store = stores
    tables = tier.tables(tier.Place.of(store, etcd), "1h", [f"s3://{BUCKET}/{BACK}"], classes=classes, permission="10m")
    return Node(bed.binary, bed.folder / name, lake.url, [lake.account], name=name, tables=tables)


def _write(lake: Lake, node: Node, name: str, count: int) -> float:
    account = lake.account
    keys = [f"{name}-{number}" for number in range(count)]
    headers = {"x-shoal-write": "back"}
    return Writes(node.url, account.access_key, account.secret_key, BUCKET, keys, _OBJECT_BYTES, headers).seconds()


def _minio(bed: Bed, lake: Lake, etcd: Etcd) -> float:
    """Returns the bytes on MinIO's drives for each byte written. It keeps no copies to compare the time with."""
    with MinioTier(bed.folder / "minio") as store:
        tier.prepare(store.lake)
        with _node(bed, (lake, store.lake), etcd, "on-minio", store.classes) as node:
            before = store.disk_bytes()[0]
            _write(lake, node, f"{BACK}minio", _OBJECTS // bed.haste)
            return (store.disk_bytes()[0] - before) / (_OBJECTS // bed.haste * _OBJECT_BYTES)
