"""Packed objects die while nodes fail: the keeper merges tables and rewrites and removes packs, and maps end and begin.

The node that keeps the map, or runs an order about it, is hurt at a chosen request. The others have the faults of
`packing` meanwhile, under clients that soon remove or replace what was packed. After each part all nodes read all names
with empty caches, and the lake has all of them for a reader without Shoal.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from real.processes import await_that, run

from . import kills
from .cluster import BACK, BUCKET
from .history import ABSENT, History
from .packing import COURSE, Troubles
from .proxied import ProxiedCluster
from .proxy import Trap
from .request_names import PACKS_LISTED
from .settled import counted, last_values, listed_everywhere, settle, settle_packed
from .stories import Broken

NODES = 4
_RULE = f"s3://{BUCKET}/{BACK}"
# The keeper looks at the lake once a minute, and removes what it has seen named before in the look after that.
_PATIENCE_S = 400
_REMOVALS = ("pack removed", "table removed")
# The requests at which keepers are hurt, in turn, each the first or a later one of a node.
_OF_KEEPER = ("table put", "pack removed", "table committed", "pack put", "table removed")
_ORDINALS_OF_KEEPER = (1, 2, 12)
# The requests at which nodes are hurt that unpack, in turn.
_OF_UNPACKING = ("table reserved", "object put at lake", "table put", "table committed", *_REMOVALS)
_ORDINALS_OF_UNPACKING = (1, 2)
# By then the caught request has been carried out.
_OVER_S = 60.0
# Few enough objects for some packs, of which most objects are removed.
_PACKS, _IN_PACK, _LIVING = 6, 10, 2
_TIDY_BYTES = 9_000
_REMOVED_AT_ONCE = 100
# Faults of a part that is about something else.
_FEW = 8


class _Ambush(Troubles):
    """Hurts a node at a chosen request, however late it comes, and other nodes until then."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._trap: Trap | None = None
        self._fault = ""
        """The requests at which nodes were hurt."""
        self.sprung: list[str] = []

    def lie_in_wait(self, name: str, ordinals: Sequence[int], node: int = 0) -> int:
        """Chooses a node, if none is named, for which other faults do not come, and what happens at its request.

        It is one of these requests of the name, counted from now.
        """
        node = node or self._next()
        if node in self._returning:
            self._returning.pop(node).result()
        self._fault = self._chance.choice(("kill", "kill", "freeze", "cut"))
        act = {"kill": self._cluster.kill, "freeze": self._cluster.freeze, "cut": None}[self._fault]
        moment, loses = self._chance.choice((("before", "loses_request"), ("after", "loses_answer")))
        fault: dict[str, object] = {moment: (lambda: act(node)) if act else None}
        if self._fault != "freeze":
            fault[loses] = True
        self.spared = node
        self._trap = self._cluster.set(node, name, ordinal=self._chance.choice(ordinals), **fault)
        return node

    def is_waiting(self) -> bool:
        """Returns whether the chosen request has not come yet. What follows a fault that came has begun."""
        if self._trap and self._trap.caught.is_set():
            self._follow(self._trap)
        return self._trap is not None

    def give_up(self) -> None:
        """Ends the wait."""
        if self._trap:
            self._cluster.proxy.take_away(self._trap)
        if self.is_waiting():
            self._trap = self.spared = None

    def kill_one(self) -> None:
        """Kills one of the other nodes."""
        self._kill(self._next())

    def strike(self) -> None:
        """Hurts one of the other nodes."""
        self._trouble(self._next())

    def _follow(self, trap: Trap) -> None:
        node = trap.node
        trap.over.wait(_OVER_S)
        self.sprung.append(trap.name)
        self._trap = self.spared = None
        self.caught += 1
        if self._fault == "kill":
            self._follow_death(node)
        elif self._fault == "freeze":
            self._returning[node] = self._pool.submit(self._thaw, node, self._frozen_s())


class _AtKeeper(_Ambush):
    """Waits for requests of the node that keeps the map."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        self._turns = itertools.cycle(_OF_KEEPER)

    def strike(self) -> None:
        """Hurts a node that is not the keeper."""
        if not self.is_waiting() and (keeper := self._cluster.keeper()) is not None:
            self.lie_in_wait(next(self._turns), _ORDINALS_OF_KEEPER, keeper)
        super().strike()

    def wait(self) -> None:
        """Waits until all nodes are back."""
        self.give_up()
        super().wait()


class _Story:
    """The parts of the story, and what their clients have left."""

    def __init__(self, cluster: ProxiedCluster, seed: int, faults: int) -> None:
        self._cluster, self._faults = cluster, faults
        """Of the names that clients write, which differ in each part."""
        self._seeds = itertools.count(100 * seed)
        """The value of each name after the last part; most names have no object any more."""
        self._values: dict[str, str] = {}

    def kept(self) -> str:
        """Keepers are hurt at their requests, until some have removed packs and tables."""
        cluster, began = self._cluster, time.monotonic()

        def passed() -> set[str]:
            return set(cluster.proxy.passed(began))

        def has_removed() -> bool:
            return passed().issuperset(_REMOVALS) or time.monotonic() > began + _PATIENCE_S

        history, caught = self._under_faults(self._faults, _AtKeeper, has_removed)
        if missing := set(_REMOVALS) - passed():
            raise Broken(f"no keeper got as far as this: {missing}")
        settle_packed(cluster, history)
        if not any("packs were rewritten" in node.log.read_text(errors="replace") for node in cluster.nodes.values()):
            raise Broken("no pack was rewritten, so nothing was proved")
        return f"kept, {caught} faults at requests: {self._counted(history)}"

    def tidied(self) -> str:
        """All is well: the dead objects leave the lake, but for packs that this keeper has never seen named."""
        cluster, hand, began = self._cluster, self._cluster.hand(timeout_s=30), time.monotonic()
        cluster.on_nodes(cluster.nodes, lambda number: cluster.nodes[number].restart_cold())
        await_that("a keeper surveys the lake", lambda: PACKS_LISTED in cluster.proxy.passed(began), _PATIENCE_S)
        packs = [[f"{BACK}tidy-{pack}-{number}." for number in range(_IN_PACK)] for pack in range(_PACKS)]
        for number, keys in enumerate(packs):
            for key in keys:
                _needs(hand.put(key, f"{key}-{_TIDY_BYTES}", 1 + number % NODES), f"{key} is written")
            self._flush()
        # By now the survey has seen the packs that were there when it began.
        living = {place.pack for place in cluster.map_at_lake().places.values()}
        orphans = cluster.packs().keys() - living
        dead = [key for keys in packs for key in keys[_LIVING:]]
        dead += [key for key, value in self._values.items() if value != ABSENT]
        for keys in (dead[at : at + _REMOVED_AT_ONCE] for at in range(0, len(dead), _REMOVED_AT_ONCE)):
            await_that("names are removed", lambda: hand.delete_all(keys, 1))  # noqa: B023
        self._flush()

        def is_tidy() -> bool:
            found = cluster.map_at_lake()
            living_bytes = sum(place.length for place in found.places.values())
            sizes = [size for pack, size in cluster.packs().items() if pack not in orphans]
            return 2 * sum(sizes) < 3 * living_bytes and sorted(found.tables) == cluster.tables()

        await_that("the lake has less than 1.5 of what lives, and no old table", is_tidy, _PATIENCE_S)
        sizes = cluster.packs()
        counted = f"{sum(size for pack, size in sizes.items() if pack not in orphans)} bytes in packs"
        settle_packed(cluster, hand.history)
        return f"tidied, {counted} and {len(orphans)} unnamed packs are left: {self._counted(hand.history)}"

    def unpacked(self) -> str:
        """Nodes are hurt while they unpack, until one of them has ended the map. Then the lake has all objects."""
        cluster = self._cluster
        seed = next(self._seeds)
        working = kills.clients(cluster, seed, **COURSE.plan)
        with ThreadPoolExecutor(2 * NODES) as pool:
            killer = _Ambush(cluster, random.Random(seed), pool)
            for name in _OF_UNPACKING:
                await_that("something is packed", lambda: bool(cluster.tables()))
                order = pool.submit(self._order, killer.lie_in_wait(name, _ORDINALS_OF_UNPACKING), "unpack")
                while killer.is_waiting() and not order.done():
                    killer.strike()
                killer.give_up()
                if order.done() and order.result():
                    # A node that starts again lets the map begin again.
                    killer.kill_one()
            killer.wait()
        if 2 * len(killer.sprung) < len(_OF_UNPACKING):
            raise Broken(f"nodes that unpack were hurt only at {killer.sprung}")
        # No node starts from now on, so packing does not begin again.
        await_that("the map ends", lambda: self._order(1, "unpack"), _PATIENCE_S)
        history = kills.ended(working, killer)
        settle(cluster, history)
        if tables := cluster.tables():
            raise Broken(f"the map has ended, and the lake has its tables {tables}")
        counted = self._counted(history)
        for key, value in self._values.items():
            if (found := cluster.at_lake(key)) != value:
                raise Broken(f"{key} was unpacked, and is {found or 'nothing'}, not {value or 'nothing'}")
        return f"unpacked, hurt at {', '.join(killer.sprung)}, {len(cluster.packs())} unnamed packs are left: {counted}"

    def begun_again(self) -> str:
        """The nodes start again with the rule, and pack again."""
        cluster = self._cluster
        cluster.on_nodes(cluster.nodes, lambda number: cluster.nodes[number].restart_cold())
        await_that("all nodes write back", cluster.all_write_back, _PATIENCE_S)
        history, _ = self._under_faults(_FEW, Troubles)
        settle_packed(cluster, history)
        return f"begun again: {self._counted(history)}"

    def rebuilt(self) -> str:
        """The registry loses everything. Nothing is read until the map is rebuilt, by nodes that are killed."""
        cluster, hand = self._cluster, self._cluster.hand()
        packed = sorted(cluster.map_at_lake().places.keys() & self._values.keys())
        for node in (1, 2):
            cluster.kill(node)
            cluster.await_silence(node)
        cluster.forget()
        for node in (1, 2):
            cluster.start_again(node)
        for node in cluster.nodes:
            # A node that ran has a map, which is good for a moment.
            await_that(f"node {node} misses the map", lambda: not hand.read(packed[0], node), _PATIENCE_S)  # noqa: B023
            if answered := [key for key in packed if hand.read(key, node)]:
                raise Broken(f"node {node} answers for {answered} without a map")
        for moment, loses in (("before", "loses_request"), ("after", "loses_answer")):
            trap = cluster.set(1, "table committed", **{moment: lambda: cluster.kill(1), loses: True})
            _needs(not self._order(1, "pack", "rebuild"), "a killed node answers no order")
            _needs(trap.caught.is_set(), "the node has died as the map was replaced")
            cluster.await_silence(1)
            cluster.start_again(1)
        _needs(not self._order(2, "pack", "rebuild"), "the registry has the map already, and no node begins it twice")
        await_that("all nodes write back", cluster.all_write_back, _PATIENCE_S)
        listed_everywhere(cluster, self._values)
        history, _ = self._under_faults(_FEW, Troubles)
        settle_packed(cluster, history)
        return f"rebuilt: {self._counted(history)}"

    def _under_faults(
        self, faults: int, killer: type[Troubles], is_over: Callable[[], bool] = lambda: True
    ) -> tuple[History, int]:
        course = replace(COURSE, killer=killer)
        return kills.under_faults(course, self._cluster, next(self._seeds), faults, is_over)

    def _counted(self, history: History) -> str:
        """Compares what all nodes list with all that clients have left so far."""
        self._values |= last_values(history)
        listed_everywhere(self._cluster, self._values)
        return counted(history)

    def _flush(self) -> None:
        self._cluster.flush(1)
        await_that("nothing is left in the registry", lambda: not self._cluster.left_in_registry(), _PATIENCE_S)

    def _order(self, node: int, *verb: str) -> bool:
        """Gives a node an order, and returns whether it was carried out."""
        try:
            run([self._cluster.binary, *verb, _RULE, "--node", self._cluster.nodes[node].admin], timeout_s=_PATIENCE_S)
        except RuntimeError:
            return False
        return True


def tell(cluster: ProxiedCluster, seed: int, faults: int) -> str:
    """Tells the parts one after the other; returns one line about each."""
    story = _Story(cluster, seed, faults)
    lines = []
    for part in (story.kept, story.tidied, story.unpacked, story.begun_again, story.rebuilt):
        lines.append(part())
        print(lines[-1], flush=True)
    return "\n".join(lines)


def _needs(holds: bool, what: str) -> None:
    if not holds:
        raise Broken(f"this did not happen: {what}")
