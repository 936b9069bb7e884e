"""A node dies that holds what the lake does not have yet: objects are whole or gone, everywhere, and back with it."""

from __future__ import annotations

import json
import signal

from real.processes import await_that

from .cluster import Cluster
from .objects import Read, whole
from .reader import Outcome
from .stories import VICTIM, Broken

_OBJECTS = 24
# Two blocks each, so that many an object has a block on the victim and another one elsewhere.
_OBJECT_BYTES = 400 << 10


def tell(cluster: Cluster, seed: int) -> list[Outcome]:
    """Written back by rack 1, lost with the victim, found again with its disk, flushed."""
    keys = [f"volatile-{seed}-{number}" for number in range(_OBJECTS)]
    reads = [whole(key, _OBJECT_BYTES) for key in keys]
    cluster.write(1, keys, _OBJECT_BYTES, "back")
    outcomes = _all_there(cluster, reads)
    others = [rack for rack in cluster.nodes if rack != VICTIM]
    cluster.signal(VICTIM, signal.SIGKILL)
    names = {cluster.nodes[rack].name for rack in others}
    await_that("the others notice", lambda: all(cluster.members(rack) == names for rack in others))
    _await_settled(cluster, others)
    lost = {rack: _lost(cluster.read_through(rack, reads)) for rack in others}
    if len({frozenset(keys) for keys in lost.values()}) != 1:
        raise Broken(f"nodes disagree about what is lost: {lost}")
    if not 0 < len(lost[others[0]]) < _OBJECTS:
        raise Broken(f"{len(lost[others[0]])} of {_OBJECTS} objects are lost, so nothing was proved")
    cluster.nodes[VICTIM].stop()
    cluster.nodes[VICTIM].start()
    cluster.await_members()
    _await_settled(cluster, list(cluster.nodes))
    outcomes += _all_there(cluster, reads)
    cluster.flush()
    outcomes.append(_sound(cluster.read_past(1, reads), "the lake"))
    return outcomes


def _await_settled(cluster: Cluster, racks: list[int]) -> None:
    def settled(rack: int) -> bool:
        return bool(json.loads(cluster.nodes[rack].ask("/status"))["write_back"]["settled"])

    await_that("the nodes know what they are home to", lambda: all(settled(rack) for rack in racks))


def _all_there(cluster: Cluster, reads: list[Read]) -> list[Outcome]:
    outcomes = cluster.read_all({rack: cluster.plan([rack], reads) for rack in cluster.nodes})
    return [_sound(outcome, f"rack {rack}") for rack, outcome in outcomes.items()]


def _sound(outcome: Outcome, where: str) -> Outcome:
    if outcome.failed or outcome.wrong or outcome.reads != _OBJECTS:
        raise Broken(f"{where}: {outcome.reads} read, failed {outcome.failed[:2]}, wrong {outcome.wrong[:2]}")
    return outcome


def _lost(outcome: Outcome) -> set[str]:
    """The objects that are not there: everything else was read whole."""
    if outcome.wrong:
        raise Broken(f"wrong bytes: {outcome.wrong[:2]}")
    otherwise = [failed for failed in outcome.failed if failed.count("status 404") != 2]
    if otherwise:
        raise Broken(f"what is lost is 404: {otherwise[:2]}")
    return {failed.split("key='", 1)[1].split("'", 1)[0] for failed in outcome.failed}
