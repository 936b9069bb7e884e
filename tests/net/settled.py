"""The end of a story of the write tier: all nodes agree on every name, the lake has it, and no work is left."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from real.processes import await_that

from .cluster import BACK
from .hand import Hand, value_of
from .history import History
from .loopback import LoopbackCluster
from .proxied import ProxiedCluster
from .stories import Broken

# The number of readers at each node.
_READERS = 2
# Names that a dead node's change keeps busy are free after FENCE.
_PATIENCE_S = 60


def bounded(history: History, node: int, died_s: float) -> None:
    """Notes a node's death: requests that it has not answered took effect before `died_s`, or never will."""
    for at, operation in enumerate(history.operations):
        if operation.node == node and operation.began_s < died_s < operation.ended_s == math.inf:
            history.operations[at] = replace(operation, ended_s=died_s)


def read_everywhere(
    cluster: LoopbackCluster, history: History, keys: Sequence[str], nodes: Sequence[int], prefix: str = BACK
) -> None:
    """Lists the prefix at all of these nodes, reads each name by GET at one, and by HEAD at another."""
    shares = [(place, number) for place in range(len(nodes)) for number in range(_READERS)]
    hands = [cluster.hand() for _ in shares]

    def read(at: int) -> None:
        (place, number), hand = shares[at], hands[at]
        node = nodes[place]
        if number == 0:
            await_that(f"node {node} lists {prefix}", lambda: hand.list(prefix, keys, node), _PATIENCE_S)
        for turn, key in list(enumerate(keys))[number::_READERS]:
            if (turn + place) % len(nodes) == 0:
                _read(hand, key, node, "GET")
            if (turn + place + 1) % len(nodes) == 0:
                _read(hand, key, node, "HEAD")

    cluster.on_nodes(range(len(shares)), read)
    for hand in hands:
        history.operations += hand.history.operations


def _read(hand: Hand, key: str, node: int, kind: str) -> None:
    await_that(f"node {node} answers a {kind} of {key}", lambda: hand.read(key, node, kind), _PATIENCE_S)


def settle(cluster: ProxiedCluster, history: History) -> None:
    """Fails if an acknowledged write is lost, came back, is wrong, or does not reach the lake."""
    keys, nodes = history.keys(), list(cluster.nodes)
    read_everywhere(cluster, history, keys, nodes)
    judge(history)
    last = last_values(history)
    cluster.flush(nodes[0])
    missing = set(keys)

    def lake_has_all() -> bool:
        missing.difference_update([key for key in missing if cluster.at_lake(key) == last[key]])
        return not missing

    try:
        await_that("the lake has everything", lake_has_all, _PATIENCE_S)
        await_that("nothing is left in the registry", lambda: not cluster.left_in_registry(), _PATIENCE_S)
    except TimeoutError as error:
        shown = [(last[key], cluster.at_lake(key)) for key in sorted(missing)[:3]]
        left = cluster.left_in_registry()
        raise Broken(f"{error}: {len(missing)} names differ {shown}; left: {left}; {cluster.write_back(1)}") from error
    read_everywhere(cluster, history, keys, nodes)
    judge(history)


def settle_packed(cluster: ProxiedCluster, history: History) -> None:
    """As `settle`, but what the lake has in packs is read by nodes with empty caches, once nothing is dirty."""
    keys, nodes = history.keys(), list(cluster.nodes)
    read_everywhere(cluster, history, keys, nodes)
    judge(history)
    for is_restarted in (False, True):
        if is_restarted:
            cluster.on_nodes(nodes, lambda number: cluster.nodes[number].restart_cold())
            read_everywhere(cluster, history, keys, nodes)
            judge(history)
            await_that("all nodes write back", cluster.all_write_back, _PATIENCE_S)
        cluster.flush(nodes[0])
        try:
            await_that("nothing is left in the registry", lambda: not cluster.left_in_registry(), _PATIENCE_S)
        except TimeoutError as error:
            raise Broken(f"{error}: {cluster.left_in_registry()}; {cluster.write_back(1)}") from error
    read_everywhere(cluster, history, keys, nodes)
    judge(history)
    if not has_packed(cluster, last_values(history)):
        raise Broken("nothing was packed, so nothing was proved")
    for node in cluster.nodes.values():
        node.forget_old_stores()


def has_packed(cluster: ProxiedCluster, values: Mapping[str, str]) -> int:
    """Fails unless the lake has these values, in packs or not, for a reader without Shoal. Returns how many it packs.

    Nothing is dirty under these names.
    """
    places = cluster.map_at_lake().places
    packs: dict[str, bytes] = {}
    wrong = []
    for key, value in values.items():
        if place := places.get(key):
            if place.pack not in packs:
                packs[place.pack] = cluster.pack(place.pack)
            found = value_of(place.cut(packs[place.pack]))
        else:
            found = cluster.at_lake(key)
        if found != value:
            wrong.append(f"{key}: {found or 'nothing'} by {place}, not {value or 'nothing'}")
    if wrong:
        raise Broken(f"{len(wrong)} names differ at the lake: {wrong[:5]}")
    return len(values.keys() & places.keys())


def judge(history: History) -> None:
    """Fails if no order of the operations on a name explains them all."""
    if mixed := history.drop_mixed():
        print(f"     {mixed} HEADs that the lake answered had the ETag of one object and the size of another")
    if unexplained := history.unexplained():
        raise Broken(f"{len(unexplained)} names: " + "\n".join(unexplained[:5]))


def counts(history: History) -> Counter[str]:
    """Returns the numbers of the clients' requests by what became of them."""
    writes = history.writes()
    return Counter(
        acknowledged=sum(write.is_acknowledged for write in writes),
        refused=sum(write.refused for write in writes),
        silent=sum(not write.answered for write in writes),
        names=len(history.keys()),
        reads=len(history.operations) - len(writes),
    )


def told(numbers: Mapping[str, int]) -> str:
    """Returns `counts` as words, for the line about a story that ended well."""
    return (
        f"{numbers['acknowledged']} writes acknowledged, {numbers['refused']} refused by their conditions, "
        f"{numbers['silent']} without an answer, {numbers['names']} names, {numbers['reads']} reads; "
        "0 lost, 0 resurrected, 0 wrong"
    )


def counted(history: History) -> str:
    """Returns the counts of the clients' requests as words."""
    return told(counts(history))


def last_values(history: History) -> dict[str, str]:
    """Returns the value of each name that a read has found last."""
    return {operation.key: operation.value for operation in history.operations if operation.is_read}


def listed_everywhere(cluster: LoopbackCluster, values: Mapping[str, str], prefix: str = BACK) -> None:
    """Fails unless each node lists exactly the names that have a value, with these values."""
    for node in cluster.nodes:
        hand = cluster.hand()
        await_that(f"node {node} lists {prefix}", lambda: hand.list(prefix, sorted(values), node), _PATIENCE_S)  # noqa: B023
        listed = last_values(hand.history)
        if wrong := [key for key, value in values.items() if listed[key] != value]:
            shown = [f"{key}: {listed[key] or 'nothing'}, not {values[key] or 'nothing'}" for key in wrong[:5]]
            raise Broken(f"node {node} lists {len(wrong)} names of earlier rounds wrongly: {shown}")
