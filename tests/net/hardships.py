"""Lasting faults: a late lake, a frozen owner, an etcd without a leader, full stores, wrong clocks."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

from real.processes import await_that
from real.wire import send

from . import kills
from .cluster import BACK, BUCKET
from .hand import Hand, body, value_of
from .history import IF_ABSENT, if_is
from .proxied import ProxiedCluster
from .proxy import Trap
from .settled import counted, settle
from .stories import Broken, CannotBeTold

LATE_S = 30
_FROZEN_S = 10
_FROZEN_LONG_S = 300
# The registry takes a node for dead when it has not heard from the node for ten seconds.
_SESSION_S = 10
# How long a client waits for an answer of a node whose tier is away: the node answers earlier.
_ANSWERED_S = 20
# The tier of 2 MiB has room for five of these, and then none for what is a little smaller.
_LARGE, _NO_ROOM = 400_000, 300_000
_FAKETIME = "libfaketimeMT.so.1"


def late_lake(cluster: ProxiedCluster, seed: int) -> str:
    """The lake carries out a flush, a DELETE and a conditional PUT long after the node has given them up."""
    hand, node, other = cluster.hand(timeout_s=8), 1, 2
    keys = {kind: f"{BACK}{seed}-late-{kind}." for kind in ("flush", "removal", "condition")}
    for kind in ("flush", "removal"):
        _needs(hand.put(keys[kind], "old-3000", node), "a node writes back")
    late = [
        cluster.set(node, "object put at lake", delay_s=LATE_S),
        cluster.set(node, "object deleted at lake", delay_s=LATE_S),
    ]
    cluster.flush(node, keys["flush"])
    _needs(late[0].caught.wait(10), "the flush is under way")
    late.append(cluster.set(node, "object put at lake", delay_s=LATE_S))
    _needs(not hand.put(keys["condition"], "late-3000", node, IF_ABSENT), "the lake is late for a PUT")
    _needs(not hand.delete(keys["removal"], node), "the lake is late for a DELETE")
    _needs(hand.put(keys["flush"], "new-4000", other), "a name with a flush under way takes a write")
    _needs(hand.put(keys["removal"], "new-4000", other), "a name with a DELETE under way takes a write")
    patience = 4 * LATE_S
    await_that("the name of a late flush is free", lambda: hand.delete(keys["flush"], other), patience)
    while not all(trap.over.is_set() for trap in late):
        for key in keys.values():
            hand.read(key, other)
            hand.read(key, node, "HEAD")
        time.sleep(0.5)
    for key in keys.values():
        await_that(f"{key} is free", lambda: hand.put(key, "last-5000", other, _as_it_is(hand, key, other)), patience)  # noqa: B023
    settle(cluster, hand.history)
    return f"{len(late)} requests carried out after {LATE_S} s; " + counted(hand.history)


def frozen_owner(cluster: ProxiedCluster, seed: int, frozen_s: float = _FROZEN_S) -> str:
    """Nodes freeze in the middle of a flush or a write; the others go on, and a node that wakes changes nothing."""
    hand, living = cluster.hand(), len(cluster.nodes)
    moments: dict[int, Callable[[int], Trap]] = {
        # The flush has begun, and nothing was sent to the lake.
        1: lambda node: Trap(node, "change begun", after=lambda: cluster.freeze(node)),
        # The lake carries it out while the node stands still.
        2: lambda node: Trap(node, "object put at lake", before=lambda: cluster.freeze(node)),
        # The registry has not heard of the lake's answer.
        3: lambda node: Trap(node, "change ended", before=lambda: cluster.freeze(node), delay_s=frozen_s),
        # The bytes of the write are in the tier's store, and its entry is on the way.
        4: lambda node: Trap(node, "entry written", before=lambda: cluster.freeze(node), delay_s=1),
    }
    keys = {node: f"{BACK}{seed}-frozen-{node}." for node in moments}
    try:
        for node, key in keys.items():
            if node != 4:
                _needs(hand.put(key, "old-70000", node), "a node writes back")
            trap = cluster.proxy.set(moments[node](node))
            if node == 4:
                hand.put(key, "old-70000", node)
            else:
                cluster.flush(node, key)
            _needs(trap.caught.wait(10), f"node {node} is in the middle of its work")
        began = time.monotonic()
        for key in keys.values():
            _needs(hand.read(key, living), "a living node reads")
        _needs(hand.put(keys[1], "new-900", living), "a living node writes over a frozen node's object")
        for key in (keys[2], keys[3], keys[4]):
            await_that("the frozen nodes are taken for dead", lambda: hand.delete(key, living), 4 * _SESSION_S)  # noqa: B023
        _needs(hand.put(keys[3], "newest-900", living), "a living node writes after a DELETE")
        cluster.flush(living, keys[1])
        newest = value_of(body("new-900"))
        await_that("its flush reaches the lake", lambda: cluster.at_lake(keys[1]) == newest, 30)
        time.sleep(max(0.0, began + frozen_s - time.monotonic()))
    finally:
        for node in keys:
            cluster.thaw(node)
    lasted = time.monotonic() - began
    for _ in range(10):
        for key in keys.values():
            hand.read(key, living)
        time.sleep(0.2)
    await_that("all nodes write back again", cluster.all_write_back, 60)
    settle(cluster, hand.history)
    return f"{len(keys)} nodes frozen for {lasted:.0f} s; " + counted(hand.history)


def frozen_owner_for_long(cluster: ProxiedCluster, seed: int) -> str:
    """Tells the story of `frozen_owner` with five minutes."""
    return frozen_owner(cluster, seed, _FROZEN_LONG_S)


def etcd_without_majority(cluster: ProxiedCluster, seed: int) -> str:
    """The leader of etcd is killed, then two of three members, while clients change names."""
    clients = kills.clients(cluster, seed)
    time.sleep(2)
    leader = cluster.etcd.leader()
    cluster.etcd.kill(leader)
    await_that("nodes write back without the old leader", cluster.all_write_back, 30)
    cluster.etcd.start_again(leader)
    time.sleep(2)
    gone = random.Random(seed).sample(range(3), 2)
    for member in gone:
        cluster.etcd.kill(member)
    try:
        _others_are_unharmed(cluster)
        _is_refused(cluster, "without a majority of etcd")
        time.sleep(_SESSION_S)
        _others_are_unharmed(cluster)
    finally:
        for member in gone:
            cluster.etcd.start_again(member)
    await_that("nodes write back again", cluster.all_write_back, 60)
    time.sleep(2)
    history = kills.ended(clients)
    settle(cluster, history)
    return counted(history)


def full_tier(cluster: ProxiedCluster, seed: int) -> str:
    """The tier reaches its capacity; later its store says that it is full."""
    hand = cluster.hand(timeout_s=_ANSWERED_S)
    for number in range(12):
        _needs(hand.put(f"{BACK}{seed}-capacity-{number}.", f"some-{_LARGE}", 1), "a write is taken, back or through")
    ways = [operation.note for operation in hand.history.operations]
    _needs("through" in ways and "back" in ways, f"the first writes go back, the last ones through: {ways}")
    await_that("there is room again", lambda: _has_room(cluster), 60)
    key = f"{BACK}{seed}-full."
    _needs(hand.put(key, "old-3000", 1), "a node writes back")
    said = b"<Error><Code>XMinioStorageFull</Code><Message>Storage backend has reached its minimum</Message></Error>"
    answer = b"HTTP/1.1 507 Insufficient Storage\r\nContent-Length: %d\r\n\r\n%b" % (len(said), said)
    full = [cluster.set(node, "piece put", answer=answer, stays=True) for node in cluster.nodes]
    _is_refused(cluster, "while the tier's store is full", key)
    for node in cluster.nodes:
        _needs(hand.read(key, node), "what is dirty is read")
    _others_are_unharmed(cluster)
    _needs(hand.delete(key, 2), "a removal needs no room")
    for trap in full:
        cluster.proxy.take_away(trap)
    await_that("nodes write back again", cluster.all_write_back, 30)
    settle(cluster, hand.history)
    return f"{ways.count('through')} of {len(ways)} writes through; " + counted(hand.history)


def _has_room(cluster: ProxiedCluster) -> bool:
    # A write that finds room takes it, and the bytes that it replaces stay for FENCE: a try every 0.1 s would
    # fill the tier itself. Nodes look two seconds after a write has found no room how full the tier is.
    time.sleep(2 * cluster.fence_s + 1)
    return cluster.all_write_back(_NO_ROOM)


def full_registry(cluster: ProxiedCluster, seed: int) -> str:
    """Another user of etcd fills it up to its quota while clients change names; an operator makes room."""
    hand = cluster.hand(timeout_s=_ANSWERED_S)
    key = f"{BACK}{seed}-registry."
    _needs(hand.put(key, "old-3000", 1), "a node writes back")
    clients = kills.clients(cluster, seed)
    time.sleep(1)
    cluster.etcd.fill()
    _is_refused(cluster, "while etcd is full", key)
    for node in cluster.nodes:
        _needs(hand.read(key, node), "what is dirty is read")
    time.sleep(_SESSION_S)
    _others_are_unharmed(cluster)
    cluster.etcd.make_room()
    await_that("nodes write back again", cluster.all_write_back, 60)
    time.sleep(2)
    history = kills.ended(clients)
    history.operations += hand.history.operations
    settle(cluster, history)
    return counted(history)


def wrong_clocks(cluster: ProxiedCluster, seed: int) -> str:
    """Clocks of nodes are ten minutes apart while nodes are killed."""
    for node, minutes in CLOCKS.items():
        off = cluster.clock(node) - time.time()
        _needs(abs(off - 60 * minutes) < 60, f"the clock of node {node} is {minutes} minutes off, not {off:.0f} s")
    return "clocks 5 minutes before and behind; " + kills.tell(cluster, seed, 4)


# Minutes that clocks are off, by node.
CLOCKS = {2: 5, 3: -5}


def clocks() -> dict[int, dict[str, str]]:
    """Returns the variables of nodes with wrong clocks. Only their time of day is wrong; monotonic time is not."""
    library = next((path for path in Path("/usr/lib").glob(f"*/faketime/{_FAKETIME}")), None)
    if library is None:
        raise CannotBeTold("libfaketime is not installed (Debian: faketime)")
    return {
        node: {
            "LD_PRELOAD": str(library),
            "FAKETIME": f"{60 * minutes:+d}s",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }
        for node, minutes in CLOCKS.items()
    }


def _needs(holds: bool, what: str) -> None:
    if not holds:
        raise Broken(f"it does not hold that {what}")


def _as_it_is(hand: Hand, key: str, node: int) -> str:
    """Returns the condition that a name has the value that a node reads."""
    _needs(hand.read(key, node), f"node {node} reads {key}")
    value = hand.history.operations[-1].value
    return if_is(value) if value else IF_ABSENT


def _is_refused(cluster: ProxiedCluster, when: str, key: str = "") -> None:
    """Fails unless every node soon answers a write back with 503."""
    key = key or f"{BACK}refused."
    for node in cluster.nodes.values():
        answer = send(node.url, cluster.account, "PUT", BUCKET, key, body=body("refused-900"), timeout_s=_ANSWERED_S)
        _needs(answer.status == 503, f"{when} a write back gets 503, and not {answer.status} {answer.body[:200]!r}")


def _others_are_unharmed(cluster: ProxiedCluster) -> None:
    """Fails unless every node writes and reads a name outside the rules."""
    for number, node in cluster.nodes.items():
        written = send(node.url, cluster.account, "PUT", BUCKET, f"other/{number}", body=body("other-900"))
        read = send(node.url, cluster.account, "GET", BUCKET, f"other/{number}")
        _needs(
            (written.status, read.status) == (200, 200), f"node {number} serves other names: {written}, {read.status}"
        )
        _needs(read.body == body("other-900"), "they are read as written")
