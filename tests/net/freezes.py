"""Nodes freeze at every stage of a change at the lake, and wake up when others have written the name and flushed it.

A round freezes all nodes but one, each in the middle of a change of a name of its own. The node that is left writes
every name and brings it to the lake, for which it has to wait until the sessions of the others have ended, and FENCE.
Then the others go on. The lake must have what was written last.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from real.processes import await_that

from .cluster import BACK
from .hand import Hand, Refused, body, value_of
from .proxied import ProxiedCluster
from .proxy import Trap
from .settled import counted, settle
from .stories import Broken

# The registry takes a node for dead after ten seconds; others look every three.
_DEAD_S = 13
_PATIENCE_S = 60
# Nodes have time for this before they freeze, and after they wake up.
_BUFFERED_S, _AWAKE_S = 0.3, 3.0
# A moment between the beginning of a change and the lake's answer.
_MOMENT_S = 0.02
# A body of more bytes fills every buffer between a node and the proxy.
_LARGE_BYTES = 24 << 20
# The buffer of a node's HTTP client.
_CLIENT_BYTES = 64 << 10
_PART = f"part-{5 << 20}"


@dataclass
class _Frozen:
    """A node in the middle of a change of a name."""

    cluster: ProxiedCluster
    hand: Hand
    node: int
    key: str
    seed: int
    size: int = 3000
    """Lets the proxy read a body that it holds back."""
    reads_on: threading.Event = field(default_factory=threading.Event)

    def dirty(self) -> None:
        """Makes a dirty object of the name."""
        name = f"old-{self.seed}-{self.size}"
        await_that(f"{self.key} is dirty", lambda: self.hand.put(self.key, name, self.node), _PATIENCE_S)

    def freeze(self) -> None:
        """Freezes the node."""
        self.cluster.freeze(self.node)


@dataclass(frozen=True)
class _Change:
    """A change, what comes before it, and the names of its requests to the lake."""

    begin: Callable[[_Frozen], object]
    act: Callable[[_Frozen], object]
    requests: Sequence[str]
    """Whether the body of the last request can be as large as one likes."""
    is_large: bool = False


def _in_parts(frozen: _Frozen) -> None:
    upload = frozen.hand.upload(frozen.key, (_PART, f"end-{frozen.size}"), frozen.node)
    if not frozen.hand.complete(frozen.key, upload, frozen.node):
        raise Refused(f"{frozen.key} cannot be completed")


def _with_source(frozen: _Frozen) -> None:
    frozen.dirty()
    frozen.cluster.put_at_lake(f"{frozen.key}source", body("source-3000"))


def _flush(frozen: _Frozen) -> None:
    frozen.cluster.flush(frozen.node, frozen.key)


def _copy(frozen: _Frozen) -> None:
    value = value_of(body("source-3000"))
    frozen.hand.copy(f"{frozen.key}source", value, frozen.key, frozen.node)


def _through(frozen: _Frozen) -> None:
    name = f"through-{frozen.seed}-{frozen.size}"
    frozen.hand.put(frozen.key, name, frozen.node, headers={"x-shoal-write": "through"})


_CHANGES = {
    "flush": _Change(_Frozen.dirty, _flush, ["object put at lake"], is_large=True),
    "flush in parts": _Change(_in_parts, _flush, ["part put at lake", "upload completed at lake"]),
    "COPY": _Change(_with_source, _copy, ["object copied at lake"]),
    "DELETE": _Change(
        _Frozen.dirty, lambda frozen: frozen.hand.delete(frozen.key, frozen.node), ["object deleted at lake"]
    ),
    "DELETE of many": _Change(
        _Frozen.dirty, lambda frozen: frozen.hand.delete_all([frozen.key], frozen.node), ["objects deleted at lake"]
    ),
    "PUT through": _Change(lambda _: None, _through, ["object put at lake"], is_large=True),
}


@dataclass(frozen=True)
class _Stage:
    """A moment of a change."""

    change: str
    what: str
    request: str = ""

    def __str__(self) -> str:
        return f"{self.change}: {self.what} {self.request}".rstrip()

    def trap(self, frozen: _Frozen) -> Trap:
        """Returns the trap that has the node freeze at this stage."""
        node = frozen.node
        if self.what == "in the body of":
            return Trap(node, self.request, reads_on=frozen.reads_on)
        if self.what == "before the end":
            return Trap(node, "change ended", before=frozen.freeze, loses_request=True)
        if self.what == "after the beginning":
            return Trap(node, "change begun", after=frozen.freeze)
        if self.what == "after some time":
            return Trap(node, "change begun", after=lambda: None)
        if self.what == "without the answer to":
            return Trap(node, self.request, before=frozen.freeze, loses_answer=True)
        return Trap(node, self.request, after=frozen.freeze)


def _stages() -> list[_Stage]:
    stages = []
    for title, change in _CHANGES.items():
        stages += [_Stage(title, what) for what in ("after the beginning", "after some time", "before the end")]
        for request in change.requests:
            stages += [_Stage(title, what, request) for what in ("without the answer to", "with the answer to")]
        if change.is_large:
            stages += [_Stage(title, "in the body of", change.requests[-1])] * 2
    return stages


def at_every_stage(cluster: ProxiedCluster, seed: int, freezes: int) -> str:
    """Freezes nodes so many times, the stages in random order."""
    chance, hand = random.Random(seed), cluster.hand(timeout_s=4)
    victims = list(cluster.nodes)[:-1]
    stages: list[_Stage] = []
    while len(stages) < freezes:
        stages += chance.sample(_stages(), len(_stages()))
    buffered = _buffered_bytes(cluster, hand, f"{BACK}{seed}-room.")
    counts: Counter[str] = Counter()
    for number, first in enumerate(range(0, freezes, len(victims))):
        some = stages[first : min(first + len(victims), freezes)]
        told = [
            (_Frozen(cluster, hand, node, f"{BACK}{seed}-{number}-{node}.", number), stage)
            for node, stage in zip(victims, some, strict=False)
        ]
        for frozen, stage in told:
            if stage.what == "in the body of":
                # What the kernel does not take is in the buffer of the HTTP client, or on its way there.
                frozen.size = buffered + chance.randrange(-_CLIENT_BYTES, 3 * _CLIENT_BYTES)
        counts += _round(cluster, hand, told, chance)
    settle(cluster, hand.history)
    caught = ", ".join(f"{what} {count}" for what, count in sorted(counts.items()))
    return f"{freezes} freezes ({caught}); " + counted(hand.history)


def two_owners(cluster: ProxiedCluster, seed: int) -> str:
    """Two nodes freeze in the middle of flushes of one name, the second when the first is taken for dead."""
    hand, key = cluster.hand(timeout_s=4), f"{BACK}{seed}-twice."
    size = _buffered_bytes(cluster, hand, f"{BACK}{seed}-room.") + _CLIENT_BYTES // 2
    frozen = [_Frozen(cluster, hand, node, key, node, size) for node in (1, 2)]
    last = list(cluster.nodes)[-1]
    try:
        for each in frozen:
            _hold_flush(each)
            each.freeze()
        newest = _written(cluster, hand, [key], last, "newest")
    finally:
        _wake(frozen)
    _unchanged(cluster, newest)
    settle(cluster, hand.history)
    return "2 nodes frozen in flushes of one name; " + counted(hand.history)


def _hold_flush(frozen: _Frozen) -> None:
    """Has a node flush an object whose last bytes stay in the node, as the proxy does not read them."""
    while True:
        frozen.dirty()
        trap = frozen.cluster.proxy.set(Trap(frozen.node, "object put at lake", reads_on=frozen.reads_on))

        def flushes(trap: Trap = trap) -> bool:
            _flush(frozen)
            return trap.caught.wait(1)

        # The change of another node may have to be given up first.
        await_that(f"node {frozen.node} flushes", flushes, _PATIENCE_S)
        time.sleep(_BUFFERED_S)
        if not _is_sent(trap):
            return
        frozen.reads_on.set()
        frozen.reads_on = threading.Event()
        frozen.size += _CLIENT_BYTES // 2


def _round(
    cluster: ProxiedCluster, hand: Hand, told: Sequence[tuple[_Frozen, _Stage]], chance: random.Random
) -> Counter[str]:
    """Freezes each node at its stage, has the last node write all names, and wakes the others up."""
    last = list(cluster.nodes)[-1]
    counts: Counter[str] = Counter()
    everyone = [frozen for frozen, _ in told]
    with ThreadPoolExecutor(len(told)) as pool:
        try:
            for frozen, stage in told:
                counts[stage.what if _frozen_at(frozen, stage, pool, chance) else "missed"] += 1
            newest = _written(cluster, hand, [frozen.key for frozen in everyone], last, f"new-{everyone[0].seed}")
            if chance.random() < 0.5:
                # The lake takes what the kernels of the frozen nodes still have.
                for frozen in everyone:
                    frozen.reads_on.set()
                time.sleep(1)
        finally:
            _wake(everyone)
    _unchanged(cluster, newest)
    await_that("all nodes write back again", cluster.all_write_back, 60)
    return counts


def _frozen_at(frozen: _Frozen, stage: _Stage, pool: ThreadPoolExecutor, chance: random.Random) -> bool:
    """Returns whether the node was frozen at its stage; if not, it is frozen now."""
    change = _CHANGES[stage.change]
    change.begin(frozen)
    trap = frozen.cluster.proxy.set(stage.trap(frozen))
    pool.submit(change.act, frozen)
    caught = trap.caught.wait(10)
    frozen.cluster.proxy.take_away(trap)
    if caught and stage.what == "in the body of":
        time.sleep(_BUFFERED_S)
        if _is_sent(trap):
            # A lake that has a whole request carries it out within the fence.
            frozen.reads_on.set()
    elif stage.what == "after some time":
        time.sleep(chance.uniform(0, _MOMENT_S))
    frozen.freeze()
    return caught


def _written(cluster: ProxiedCluster, hand: Hand, keys: Sequence[str], node: int, name: str) -> dict[str, str]:
    """Writes all names at a node that lives, and waits until the lake has them. Returns their values."""
    values = {}
    for number, key in enumerate(keys):
        await_that(f"{key} is written", lambda: hand.put(key, f"{name}-{900 + number}", node), _PATIENCE_S)  # noqa: B023
        values[key] = value_of(body(f"{name}-{900 + number}"))

    def lake_has_all() -> bool:
        cluster.flush(node)
        time.sleep(0.5)
        return all(cluster.at_lake(key) == value for key, value in values.items())

    await_that("the lake has what was written last", lake_has_all, _DEAD_S + 2 * cluster.fence_s + _PATIENCE_S)
    return values


def _wake(everyone: Sequence[_Frozen]) -> None:
    for frozen in everyone:
        frozen.cluster.thaw(frozen.node)
        frozen.reads_on.set()


def _unchanged(cluster: ProxiedCluster, newest: dict[str, str]) -> None:
    """Fails if the lake does not keep what was written last."""
    until = time.monotonic() + _AWAKE_S
    while time.monotonic() < until:
        for key, value in newest.items():
            if (found := cluster.at_lake(key)) != value:
                raise Broken(f"{key} was {value} at the lake, and is {found} since a node has woken up")
        time.sleep(0.1)


def _buffered_bytes(cluster: ProxiedCluster, hand: Hand, key: str) -> int:
    """Returns how many bytes of a body the kernel takes while the proxy reads nothing."""
    frozen = _Frozen(cluster, hand, 1, key, 0, size=_LARGE_BYTES)
    frozen.dirty()
    trap = cluster.proxy.set(Trap(1, "object put at lake", reads_on=frozen.reads_on))
    _flush(frozen)
    if not trap.caught.wait(10) or trap.request is None:
        raise Broken("the flush of a large object does not begin")
    time.sleep(_BUFFERED_S)
    held = sum(_in_kernel(trap))
    frozen.reads_on.set()
    value = value_of(body(f"old-0-{_LARGE_BYTES}"))
    await_that("the large object is at the lake", lambda: cluster.at_lake(key) == value, _PATIENCE_S)
    return held


def _is_sent(trap: Trap) -> bool:
    """Returns whether the proxy's side has all bytes that the kernel has taken from the node."""
    return _in_kernel(trap)[0] == 0


def _in_kernel(trap: Trap) -> tuple[int, int]:
    """Returns the bytes of a request that the kernel holds at the node's end, and at the proxy's."""
    sender, door = trap.request.ports if trap.request else (0, 0)
    at_node, at_proxy = 0, 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, own, other, _, queues, *_ = line.split()
        ports = int(own.split(":")[1], 16), int(other.split(":")[1], 16)
        to_send, to_read = (int(size, 16) for size in queues.split(":"))
        if ports == (sender, door):
            at_node = to_send
        elif ports == (door, sender):
            at_proxy = to_read
    return at_node, at_proxy
