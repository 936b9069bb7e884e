"""Nodes, links and stores fail while clients write into a tier: acknowledged writes last, and reach the lake."""

from __future__ import annotations

import json
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from real.processes import await_that
from real.wire import send

from .changer import Plan
from .cluster import BUCKET, Cluster, Remote
from .fabric import REGISTRY_ADDRESSES, TIER_ADDRESS, node_address
from .hand import value_in
from .history import ABSENT, History
from .stories import Broken

_BETWEEN_S = 1.0
# Nodes take another node for dead when the registry has not heard from it for ten seconds. A killed node that
# starts again writes nothing back until the registry has ended its earlier session in this way.
_TAKEN_FOR_DEAD_S = 12.0
_SHORT_S = 4.0
# In this time nodes adopt the work of the dead node, and finish the requests that a slow lake delayed.
_AT_LAKE_S = 60


@dataclass(frozen=True)
class Act:
    """A fault of a node: its begin, its end, and its duration."""

    begin: Callable[[Cluster, int], None]
    end: Callable[[Cluster, int], None]
    seconds: float = _SHORT_S


def _kill(cluster: Cluster, victim: int) -> None:
    cluster.signal(victim, signal.SIGKILL)


def _start_again(cluster: Cluster, victim: int) -> None:
    cluster.nodes[victim].stop()
    cluster.nodes[victim].start()


def _from_the_others(cluster: Cluster, victim: int) -> None:
    others = [node_address(rack) for rack in cluster.nodes if rack != victim]
    cluster.fabric.part(f"node-{victim}", others)


def _heal(cluster: Cluster, _: int) -> None:
    cluster.fabric.heal()


_ACTS = {
    "killed": Act(_kill, _start_again),
    "killed once more": Act(_kill, _start_again),
    "frozen": Act(
        lambda cluster, victim: cluster.signal(victim, signal.SIGSTOP),
        lambda cluster, victim: cluster.signal(victim, signal.SIGCONT),
        _TAKEN_FOR_DEAD_S,
    ),
    "cut off from etcd": Act(
        lambda cluster, victim: cluster.fabric.part(f"node-{victim}", REGISTRY_ADDRESSES), _heal, _TAKEN_FOR_DEAD_S
    ),
    "cut off from the tier": Act(lambda cluster, victim: cluster.fabric.part(f"node-{victim}", [TIER_ADDRESS]), _heal),
    "cut off from the lake": Act(lambda cluster, victim: cluster.fabric.cut_off(f"lake-{victim}"), _heal),
    "cut off from the others": Act(_from_the_others, _heal),
}


@dataclass(frozen=True)
class _Happened:
    """An act, the node that it happened to, and its times."""

    victim: int
    name: str
    began_s: float
    ended_s: float


def tell(cluster: Cluster, seed: int) -> str:
    """Clients in every rack write, remove and read while nodes fail one after the other; the last one stays dead."""
    chance = random.Random(seed)
    clients = [Remote(rack, "net.changer", _plan(cluster, rack, seed).to_json()) for rack in cluster.nodes]
    for client in clients:
        client.go()
    time.sleep(_BETWEEN_S)
    happened = []
    for name in chance.sample(list(_ACTS), len(_ACTS)):
        victim = chance.choice(list(cluster.nodes))
        began = time.monotonic()
        _ACTS[name].begin(cluster, victim)
        time.sleep(_ACTS[name].seconds)
        happened.append(_Happened(victim, name, began, time.monotonic()))
        _ACTS[name].end(cluster, victim)
        time.sleep(_BETWEEN_S)
    dead = chance.choice(list(cluster.nodes))
    cluster.signal(dead, signal.SIGKILL)
    time.sleep(_BETWEEN_S)
    for client in clients:
        client.end()
    history = History([operation for client in clients for operation in _history(client).operations])
    _judge_acts(happened, history, list(cluster.nodes))
    living = [rack for rack in cluster.nodes if rack != dead]
    _read_everything(cluster, living, history)
    _await_lake(cluster, living, history)
    _read_everything(cluster, living, history)
    if unexplained := history.unexplained():
        raise Broken(f"{len(unexplained)} names: " + "\n".join(unexplained[:5]))
    return _summary(history)


def _plan(cluster: Cluster, rack: int, seed: int, read: Sequence[str] = ()) -> Plan:
    urls = {number: node.url for number, node in cluster.nodes.items()}
    account = cluster.lake.account
    # No other client runs beside the reads at the end.
    connections = 8 if read else 3
    return Plan(urls, rack, account.access_key, account.secret_key, BUCKET, seed, connections, read=read)


def _history(client: Remote) -> History:
    return History.from_json(client.last_line())


def _judge_acts(happened: Sequence[_Happened], history: History, nodes: Sequence[int]) -> None:
    """Raises `Broken` if an act at one node kept another node from writing back."""
    for act in happened:
        taken = Counter(
            each.node
            for each in history.operations
            if each.is_acknowledged and each.note == "back"
            if act.began_s < each.began_s and each.ended_s < act.ended_s
        )
        since = act.ended_s - _TAKEN_FOR_DEAD_S - _SHORT_S
        recovering = {other.victim for other in happened if since < other.ended_s <= act.ended_s}
        idle = [node for node in nodes if node not in recovering and not taken[node]]
        if idle:
            raise Broken(f"while node {act.victim} was {act.name}, nothing was written back at {idle}: {taken}")


def _read_everything(cluster: Cluster, living: Sequence[int], history: History) -> None:
    """Reads every name at every living node."""
    keys = history.keys()
    readers = [Remote(rack, "net.changer", _plan(cluster, rack, 0, keys).to_json()) for rack in living]
    for reader in readers:
        reader.go()
    for reader in readers:
        read = _history(reader).operations
        silent = [operation for operation in read if operation.value == "no answer"]
        if silent:
            raise Broken(f"{len(silent)} names cannot be read: {silent[:3]}")
        history.operations += read


def _await_lake(cluster: Cluster, living: Sequence[int], history: History) -> None:
    """Waits until the lake has, for every name, the value that a node returns."""
    node = cluster.nodes[living[0]].url
    differing: dict[str, tuple[str, str]] = {}
    missing = set(history.keys())

    def has_all() -> bool:
        # A write without an answer may take effect this late, so the node is asked again each time.
        for key in sorted(missing):
            differing[key] = _value(cluster, node, key), _value(cluster, cluster.lake.url, key)
        missing.difference_update([key for key in missing if len(set(differing[key])) == 1])
        return not missing

    try:
        await_that("the lake has everything", has_all, _AT_LAKE_S)
    except TimeoutError as error:
        shown = [(key, *differing[key]) for key in sorted(missing)[:3]]
        first = min(missing)
        done = sorted((each for each in history.operations if each.key == first), key=lambda each: each.began_s)
        print(f"what happened to {first}:", *done, sep="\n  ", flush=True)
        status = [json.loads(cluster.nodes[rack].ask("/status"))["write_back"] for rack in living]
        raise Broken(f"the lake does not have {len(missing)} names as they are: {shown}, {status}") from error


def _value(cluster: Cluster, url: str, key: str) -> str:
    answer = send(url, cluster.lake.account, "GET", BUCKET, key)
    if answer.status == 404:
        return ABSENT
    return value_in(answer, "GET") if answer.status == 200 else f"status {answer.status}"


def _summary(history: History) -> str:
    writes = history.writes()
    acknowledged = [write for write in writes if write.is_acknowledged]
    back = sum(write.note == "back" for write in acknowledged)
    return (
        f"{len(acknowledged)} writes acknowledged, {back} of them before the lake had them, "
        f"{sum(write.refused for write in writes)} refused by their conditions, "
        f"{sum(not write.answered for write in writes)} without an answer, {len(history.keys())} names, "
        f"{len(history.operations) - len(writes)} reads"
    )
