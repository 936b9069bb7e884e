"""A node fails while clients read: no byte is wrong, one retry heals each read, and the cluster recovers by itself."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from real.processes import await_that

from .cluster import Client, Cluster
from .objects import Read, ranges
from .reader import Outcome

_OBJECTS = 12
_OBJECT_BYTES = 2 << 20
_READ_BYTES = 640 << 10
_BEFORE_S, _WHILE_S, _AFTER_S = 1.0, 4.0, 1.0
# Shorter than a fault, so that clients try again while it lasts; longer than a node takes to pass by two
# silent nodes.
_CLIENT_TIMEOUT_S = 5.0
VICTIM = 2


class Broken(AssertionError):
    """A story that did not end as it should."""


class CannotBeTold(RuntimeError):
    """A story that this machine cannot tell; the message says why, for the line that reports the skip."""


def failure(name: str, seed: int, trouble: Exception) -> str:
    """Returns the lines about a story that failed. The first says why, and the others where."""
    where = "".join(traceback.format_exception(trouble))
    return f"FAILED {name} (seed {seed}): {type(trouble).__name__}: {trouble}\n{where}"


@dataclass(frozen=True)
class Fault:
    """A fault of the victim: its begin and its end."""

    begin: Callable[[Cluster], None]
    end: Callable[[Cluster], None]
    """Whether the other nodes have to notice that the victim is gone, and remove it from their rings."""
    noticed: bool = True
    """The counter of the victim's store in `/status` that shows the effect of the fault."""
    counted: str = ""


def _kill(cluster: Cluster) -> None:
    cluster.signal(VICTIM, signal.SIGKILL)


def _start_again(cluster: Cluster) -> None:
    cluster.nodes[VICTIM].stop()
    cluster.nodes[VICTIM].start()


def _freeze(cluster: Cluster) -> None:
    cluster.signal(VICTIM, signal.SIGSTOP)


def _thaw(cluster: Cluster) -> None:
    cluster.signal(VICTIM, signal.SIGCONT)


def _heal(cluster: Cluster) -> None:
    cluster.fabric.heal()


def _fill_the_disk(cluster: Cluster) -> None:
    with cluster.filler(VICTIM).open("wb", buffering=0) as filler, contextlib.suppress(OSError):
        while True:
            filler.write(bytes(4 << 10))


def _free_the_disk(cluster: Cluster) -> None:
    cluster.filler(VICTIM).unlink()


def _flip_bits(cluster: Cluster) -> None:
    """Kills the node and flips one bit in each block, as a bad disk would, in a copy that takes the file's place.

    The kernel may still be sending pages of the files themselves to the clients of the killed node. A change of those
    pages would reach clients without ever having been on a disk.
    """
    _kill(cluster)
    cluster.nodes[VICTIM].stop()
    for number, path in enumerate(sorted(cluster.nodes[VICTIM].store.glob("blocks/*/*"))):
        block = bytearray(path.read_bytes())
        # The place of the bit differs from file to file.
        block[number * 7919 % len(block)] ^= 1 << number % 8
        copy = path.with_name("copy")
        copy.write_bytes(block)
        copy.replace(path)


FAULTS = {
    "a_node_that_is_killed_costs_at_most_a_retry": Fault(_kill, _start_again),
    "a_node_that_stands_still_costs_at_most_a_retry": Fault(_freeze, _thaw),
    "a_node_that_nobody_reaches_costs_at_most_a_retry": Fault(lambda c: c.fabric.cut_off(f"node-{VICTIM}"), _heal),
    # The rack's clients go on reading from its node, and the node from the lake.
    "a_rack_that_is_cut_off_reads_on": Fault(lambda c: c.fabric.cut_off(f"uplink-{VICTIM}"), _heal),
    "a_link_that_loses_one_packet_in_a_hundred_costs_no_node": Fault(
        lambda c: c.fabric.lose(f"node-{VICTIM}", 1), _heal, noticed=False
    ),
    "a_disk_that_is_full_costs_room_and_no_read": Fault(
        _fill_the_disk, _free_the_disk, noticed=False, counted="io_errors"
    ),
    "a_node_whose_blocks_were_damaged_gives_none_of_them": Fault(_flip_bits, _start_again, counted="corrupt_blocks"),
}


def tell(fault: Fault, cluster: Cluster, seed: int) -> list[Outcome]:
    """Clients in every rack read while the fault comes and goes; returns the outcomes of their reads."""
    reads = _prepare(cluster, seed)
    everyone = {node.name for node in cluster.nodes.values()}
    clients = [_client(cluster, rack, reads, seed) for rack in cluster.nodes]
    for client in clients:
        client.go()
    time.sleep(_BEFORE_S)
    fault.begin(cluster)
    if fault.noticed:
        rest = everyone - {cluster.nodes[VICTIM].name}
        others = [rack for rack in cluster.nodes if rack != VICTIM]
        await_that("the others notice", lambda: all(cluster.members(rack) == rest for rack in others))
    time.sleep(_WHILE_S)
    fault.end(cluster)
    cluster.await_members()
    time.sleep(_AFTER_S)
    outcomes = [client.stop() for client in clients]
    for rack, outcome in zip(cluster.nodes, outcomes, strict=True):
        _judge(f"rack {rack}", outcome)
    _serves_again(cluster, reads)
    if fault.counted and not json.loads(cluster.nodes[VICTIM].ask("/status"))["store"][fault.counted]:
        raise Broken(f"the victim counted nothing in {fault.counted}, so nothing was proved")
    return outcomes


def _prepare(cluster: Cluster, seed: int) -> list[Read]:
    keys = [f"story-{seed}-{number}" for number in range(_OBJECTS)]
    for key in keys:
        cluster.put(key, _OBJECT_BYTES)
    # Ranges that begin and end within blocks.
    return [read for key in keys for read in ranges(key, _OBJECT_BYTES, _READ_BYTES)]


def _client(cluster: Cluster, rack: int, reads: list[Read], seed: int) -> Client:
    others = [other for other in cluster.nodes if other != rack]
    random.Random(seed + rack).shuffle(others)
    # A retry goes to a node without a fault.
    others.sort(key=lambda other: other == VICTIM)
    plan = cluster.plan([rack, *others], reads, connections=3, endless_seed=seed + rack, timeout_s=_CLIENT_TIMEOUT_S)
    return Client(rack, plan)


def _judge(who: str, outcome: Outcome) -> None:
    if outcome.wrong:
        raise Broken(f"{who} was given bytes that are not the object's: {outcome.wrong[:3]}")
    if outcome.failed:
        raise Broken(f"{who} had {len(outcome.failed)} reads that a retry did not heal: {outcome.failed[:3]}")
    if not outcome.reads:
        raise Broken(f"{who} read nothing, so nothing was proved")


def _serves_again(cluster: Cluster, reads: list[Read]) -> None:
    outcomes = cluster.read_all({rack: cluster.plan([rack], reads) for rack in cluster.nodes})
    for rack, outcome in outcomes.items():
        _judge(f"rack {rack}, afterwards,", outcome)
        if outcome.healed:
            raise Broken(f"rack {rack} needed retries when all was well again: {dict(outcome.healed)}")
