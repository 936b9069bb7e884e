"""Nodes that pack small objects are killed and frozen, and lose requests and answers, while clients change names.

The faults come at random moments and at requests of the rounds: the PUT of a pack and of a table, the reservation of a
table and its commit, and the merges and removals of the keeper.
"""

from __future__ import annotations

import time

from . import kills
from .proxied import ProxiedCluster
from .proxy import Trap
from .settled import settle_packed

# A node that is frozen for the longer time loses its session, and others end its reservation.
_FROZEN_S = (0.2, 3.0)
_FROZEN_LONG_S = 13.0
_CUT_S = (0.5, 4.0)
_OF_ROUNDS = ("change begun", "pack put", "table reserved", "table put", "table committed", "change ended")
# Each node has a round in this time.
_ROUND_S = 1.5


class _Troubles(kills.Killer):
    """Kills, freezes and cuts off nodes."""

    FAULTS = "kills, freezes and cuts"

    def strike(self) -> None:
        """Does one of these to one of the living nodes."""
        node, chance = self._next(), self._chance.random()
        if chance < 0.5:
            self._kill(node)
        elif chance < 0.75:
            self._freeze_in_round(node)
            frozen_s = _FROZEN_LONG_S if self._chance.random() < 0.3 else self._chance.uniform(*_FROZEN_S)
            self._returning[node] = self._pool.submit(self._thaw, node, frozen_s)
        else:
            service = self._chance.choice(("lake", "lake", "registry", "tier"))
            loses = self._chance.choice(("loses_request", "loses_answer"))
            trap = self._cluster.set(node, service, stays=True, **{loses: True})
            self._returning[node] = self._pool.submit(self._connect, trap, self._chance.uniform(*_CUT_S))

    def _freeze_in_round(self, node: int) -> None:
        def freeze() -> None:
            self._cluster.freeze(node)

        # The lake or the registry carries the request out while the node stands still, or has answered it.
        moment = self._chance.choice(("before", "after"))
        trap = self._cluster.set(node, self._chance.choice(_OF_ROUNDS), **{moment: freeze})
        is_caught = trap.caught.wait(_ROUND_S)
        self._cluster.proxy.take_away(trap)
        if not is_caught:
            freeze()

    def _thaw(self, node: int, after_s: float) -> None:
        time.sleep(after_s)
        self._cluster.thaw(node)

    def _connect(self, trap: Trap, after_s: float) -> None:
        time.sleep(after_s)
        self._cluster.proxy.take_away(trap)


def tell(cluster: ProxiedCluster, seed: int, faults: int) -> str:
    """Runs rounds until the given number of nodes had a fault; returns one line about them."""
    told = kills.tell(cluster, seed, faults, killer=_Troubles, settled=settle_packed)
    packs, tables, others = cluster.packs()
    return f"{told}; the lake has {packs} packs, {tables} tables, {others} other objects"
