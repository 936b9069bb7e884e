"""A registry that fills up, and a node that takes its own session over."""

from __future__ import annotations

import json
import time

from real.processes import await_that
from real.wire import send

from . import kills
from .cluster import BACK, BUCKET
from .hand import body
from .proxied import ProxiedCluster
from .settled import counted, settle
from .stories import Broken

QUOTA_BYTES = 64 << 20
# How long a node may take for a write after it has started again: its earlier session lasts for longer.
_SOON_S = 5
# How long clients write before the registry is lost, and afterwards.
_WRITTEN_S = 3


def nearly_full(cluster: ProxiedCluster, seed: int) -> str:
    """Another user of etcd fills a good part of it: nothing new begins, and what is dirty goes to the lake."""
    hand, node = cluster.hand(timeout_s=20), 1
    dirty, removed, clean = (f"{BACK}{seed}-{kind}." for kind in ("dirty", "removed", "clean"))
    for key in (dirty, removed):
        _needs(hand.put(key, "old-3000", node), "a node writes back")
    cluster.etcd.fill(QUOTA_BYTES * 82 // 100)
    await_that("a condition says so", lambda: _condition(cluster, node) is not None, 10)
    for method, headers in (("PUT", {}), ("PUT", {"x-shoal-write": "around"}), ("DELETE", {})):
        data = body("new-900") if method == "PUT" else b""
        answer = send(cluster.nodes[node].url, cluster.account, method, BUCKET, clean, body=data, headers=headers)
        is_told = answer.status == 503 and b"SlowDown" in answer.body and b"nearly full" in answer.body
        _needs(is_told, f"{method} {headers} is refused, and not {answer.status} {answer.body[:300]!r}")
    _needs(hand.delete(removed, node), "a removal makes room")
    cluster.flush(node)
    await_that("what is dirty goes to the lake", lambda: not cluster.left_in_registry("qb"), 30)
    for key in (dirty, removed):
        _needs(hand.read(key, node), "names are read")
    cluster.etcd.make_room()
    await_that("the condition is over", lambda: _condition(cluster, node) is None, 10)
    await_that("nodes write back again", cluster.all_write_back, 30)
    settle(cluster, hand.history)
    return counted(hand.history)


def takeover(cluster: ProxiedCluster, seed: int) -> str:
    """A node is killed in mid DELETE: it writes back as soon as it serves, and the name of the DELETE stays held."""
    hand, node, other = cluster.hand(timeout_s=8), 1, 2
    held, new = (f"{BACK}{seed}-{kind}." for kind in ("held", "new"))
    _needs(hand.put(held, "old-3000", node), "a node writes back")
    trap = cluster.set(node, "object deleted at lake", before=lambda: cluster.kill(node), loses_request=True)
    _needs(not hand.delete(held, node), "the node dies")
    _needs(trap.over.wait(10), "the DELETE was under way")
    cluster.await_silence(node)
    cluster.start_again(node)
    began = time.monotonic()
    _needs(hand.put(new, "new-3000", node), "the node has its tier")
    is_back = hand.history.operations[-1].note == "back"
    took_s = time.monotonic() - began
    _needs(is_back and took_s < _SOON_S, f"it writes back at once, not after {took_s:.1f} s")
    _needs(bool(cluster.left_in_registry("b")), "the change of its earlier life is still open")
    _needs(hand.read(held, other), "its name is read")
    await_that("the name is free", lambda: hand.delete(held, other), 10 + 3 * cluster.fence_s)
    settle(cluster, hand.history)
    return f"a write back {took_s:.1f} s after the start; " + counted(hand.history)


def lost(cluster: ProxiedCluster, seed: int) -> str:
    """All members of etcd and their disks are gone under writers; the registry is recovered from receipts."""
    working = kills.clients(cluster, seed)
    time.sleep(_WRITTEN_S)
    cluster.etcd.lose()
    recovered = cluster.recover()
    await_that("all nodes write back again", cluster.all_write_back, 60)
    time.sleep(_WRITTEN_S)
    history = kills.ended(working)
    settle(cluster, history)
    await_that("no receipt is left", lambda: not cluster.receipts(), 60)
    return f"{recovered}; " + counted(history)


def _condition(cluster: ProxiedCluster, node: int) -> str | None:
    """Returns what a node says of its registry, if it is nearly full."""
    conditions = json.loads(cluster.nodes[node].ask("/status"))["conditions"]
    return next((each["detail"] for each in conditions if each["condition"] == "registry-nearly-full"), None)


def _needs(holds: bool, what: str) -> None:
    if not holds:
        raise Broken(f"it does not hold that {what}")
