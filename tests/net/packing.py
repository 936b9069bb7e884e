"""Nodes that pack small objects are killed and frozen, and lose requests and answers, or have them late, under load.

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
# A node gives the lake up after a second, and the lake may carry the request out for two seconds more.
_LATE_S = (0.8, 2.2)
_OF_ROUNDS = ("change begun", "pack put", "table reserved", "table put", "table committed", "change ended")
# Each node has a round in this time.
_ROUND_S = 1.5
# Three of four objects are small enough for packs; an object and its successor often are not both.
SIZES = (0, 900, 9_000, 70_000)
# Workers soon remove or replace what was packed.
NAMES_MAX = 20


class Troubles(kills.Killer):
    """Kills, freezes and cuts off nodes, and has the lake carry out their requests late."""

    FAULTS = "kills, freezes, cuts and late requests"

    def strike(self) -> None:
        """Does one of these to one of the living nodes."""
        self._trouble(self._next())

    def _trouble(self, node: int) -> None:
        chance = self._chance.random()
        if chance < 0.5:
            self._kill(node)
        elif chance < 0.7:
            self._freeze_in_round(node)
            self._returning[node] = self._pool.submit(self._thaw, node, self._frozen_s())
        else:
            self._returning[node] = self._pool.submit(self._connect, self._cut(node), self._chance.uniform(*_CUT_S))

    def _cut(self, node: int) -> Trap:
        if self._chance.random() < 0.4:
            return self._cluster.set(node, "lake", stays=True, delay_s=self._chance.uniform(*_LATE_S))
        service = self._chance.choice(("lake", "lake", "registry", "tier"))
        loses = self._chance.choice(("loses_request", "loses_answer"))
        return self._cluster.set(node, service, stays=True, **{loses: True})

    def _frozen_s(self) -> float:
        return _FROZEN_LONG_S if self._chance.random() < 0.3 else self._chance.uniform(*_FROZEN_S)

    def _request(self) -> str:
        is_of_round = self._chance.random() < 0.5
        return self._chance.choice(_OF_ROUNDS) if is_of_round else super()._request()

    def _freeze_in_round(self, node: int) -> None:
        def freeze() -> None:
            self._cluster.freeze(node)

        # The lake or the registry carries the request out while the node stands still, or has answered it.
        moment = self._chance.choice(("before", "after"))
        trap = self._cluster.set(node, self._chance.choice(_OF_ROUNDS), **{moment: freeze})
        is_caught = trap.caught.wait(_ROUND_S)
        self._cluster.proxy.take_away(trap)
        if is_caught or trap.caught.is_set():
            self.caught += 1
        else:
            freeze()

    def _thaw(self, node: int, after_s: float) -> None:
        time.sleep(after_s)
        self._cluster.thaw(node)

    def _connect(self, trap: Trap, after_s: float) -> None:
        time.sleep(after_s)
        self._cluster.proxy.take_away(trap)


COURSE = kills.Course(Troubles, settle_packed, {"sizes": SIZES, "names_max": NAMES_MAX})


def tell(cluster: ProxiedCluster, seed: int, faults: int) -> str:
    """Runs rounds until the given number of nodes had a fault; returns one line about them."""
    told = kills.tell(cluster, seed, faults, COURSE)
    return f"{told}; the lake has {len(cluster.packs())} packs, {len(cluster.map_at_lake().places)} objects in them"
