"""The suite kills one node after the other, at random moments and requests, while clients change names at all nodes.

A round ends when clients have stopped, every name was read at every node, and the lake has everything. Most nodes
start again at once: the suite ends their session, for which the registry would wait some seconds. Some nodes stay dead
until others have taken over their work.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from real.processes import await_that

from .changer import Plan
from .cluster import BUCKET, Remote
from .history import History
from .proxied import ProxiedCluster
from .request_names import IDLE
from .settled import bounded, counts, last_values, listed_everywhere, settle, told
from .stories import Broken

NODES = 4
_ROUND_KILLS = 50
_BETWEEN_S = (0.05, 0.7)
# Every node has one client with so many connections.
_CONNECTIONS = 2
# Other nodes adopt a node that stays dead for so long.
_STAYS_DEAD_S = 5.0
_CAUGHT_S = 1.5
# By then the caught request has been carried out.
_OVER_S = 60.0
# Nodes soon repeat the requests that they have made in this time, except those of a starting node.
_RARE = {"session begun"}
_LATELY_S = 3.0


class Killer:
    """Kills nodes, and starts them again in threads of their own."""

    FAULTS = "kills"

    def __init__(self, cluster: ProxiedCluster, chance: random.Random, pool: ThreadPoolExecutor) -> None:
        self._cluster, self._chance, self._pool = cluster, chance, pool
        """The node that has no fault now, if there is one."""
        self.spared: int | None = None
        """Nodes that are dead, or hurt in another way, until their futures are done."""
        self._returning: dict[int, Future[None]] = {}
        self.ends: list[tuple[int, float]] = []
        """The number of faults that came at a chosen request."""
        self.caught = 0

    def strike(self) -> None:
        """Kills one of the living nodes."""
        self._kill(self._next())

    def _next(self) -> int:
        """Chooses one of the living nodes; waits for a dead one first if too few live."""
        time.sleep(self._chance.uniform(*_BETWEEN_S))
        dead = [node for node, future in self._returning.items() if not future.done()]
        living = [node for node in self._cluster.nodes if node not in (*dead, self.spared)]
        if dead and len(living) <= len(self._cluster.nodes) // 2:
            self._returning[dead[0]].result()
            living.append(dead[0])
        node = self._chance.choice(living)
        if node in self._returning:
            self._returning.pop(node).result()
        return node

    def _kill(self, node: int) -> None:
        if self._chance.random() < 0.6:
            self._kill_at_request(node)
        else:
            self._cluster.kill(node)
        self._follow_death(node)

    def _follow_death(self, node: int) -> None:
        """Notes when a node died, and has it start again."""
        self._cluster.await_silence(node)
        self.ends.append((node, time.monotonic()))
        pause = _STAYS_DEAD_S if self._chance.random() < 0.15 else 0.0
        self._returning[node] = self._pool.submit(self._start_again, node, pause)

    def wait(self) -> None:
        """Waits until all nodes are back."""
        for future in self._returning.values():
            future.result()
        self._returning.clear()

    def _kill_at_request(self, node: int) -> None:
        def kill() -> None:
            self._cluster.kill(node)

        name = self._request()
        is_after = self._chance.random() < 0.5
        fault = {"after": kill, "loses_answer": True} if is_after else {"before": kill, "loses_request": True}
        trap = self._cluster.set(node, name, **fault)
        caught = trap.caught.wait(_CAUGHT_S)
        self._cluster.proxy.take_away(trap)
        if caught or trap.caught.is_set():
            trap.over.wait(_OVER_S)
            self.caught += 1
        else:
            self._cluster.kill(node)

    def _request(self) -> str:
        """Returns the name of a request that a node may make soon."""
        passed = self._cluster.proxy.passed(time.monotonic() - _LATELY_S)
        # Chance prefers frequent requests. Another node than this one may have made them.
        return self._chance.choice([name for name in passed if name not in IDLE | _RARE] or ["entry written"])

    def _start_again(self, node: int, pause_s: float) -> None:
        if pause_s:
            self._cluster.end_session(node)
            time.sleep(pause_s)
        self._cluster.start_again(node)


@dataclass(frozen=True)
class Course:
    """The faults of a story, and the work of its clients beside that of all stories."""

    killer: type[Killer] = Killer
    settled: Callable[[ProxiedCluster, History], None] = settle
    plan: dict[str, Any] = field(default_factory=dict)


def tell(cluster: ProxiedCluster, seed: int, kills: int, course: Course | None = None) -> str:
    """Runs rounds until the given number of nodes were killed; returns one line about them."""
    course = course or Course()
    numbers: Counter[str] = Counter()
    # All that is kept of a round.
    values: dict[str, str] = {}
    done = caught = 0
    while done < kills:
        number = min(_ROUND_KILLS, kills - done)
        history, at_requests = under_faults(course, cluster, 1000 * seed + done, number)
        course.settled(cluster, history)
        numbers += counts(history)
        values |= last_values(history)
        done, caught = done + number, caught + at_requests
        if done < kills:
            print(f"{done} {course.killer.FAULTS}, seed {seed}: {told(counts(history))}", flush=True)
    listed_everywhere(cluster, values)
    return f"{done} {course.killer.FAULTS}, {caught} of them at a request, seed {seed}; " + told(numbers)


def under_faults(
    course: Course, cluster: ProxiedCluster, seed: int, number: int, is_over: Callable[[], bool] = lambda: True
) -> tuple[History, int]:
    """Clients work during so many faults, and further ones until `is_over`.

    Returns their history, and the number of faults at a request. All nodes are well again.
    """
    working = clients(cluster, seed, **course.plan)
    with ThreadPoolExecutor(len(cluster.nodes)) as pool:
        killer = course.killer(cluster, random.Random(seed), pool)
        while number > 0 or not is_over():
            killer.strike()
            number -= 1
        killer.wait()
    time.sleep(1)
    history = ended(working, killer)
    await_that("all nodes write back", cluster.all_write_back, 30)
    return history, killer.caught


def clients(cluster: ProxiedCluster, seed: int, **more: Any) -> list[Remote]:
    """Starts one client for each node."""
    working = [Remote(None, "net.changer", _plan(cluster, node, seed, **more).to_json()) for node in cluster.nodes]
    for client in working:
        client.go()
    return working


def ended(working: Sequence[Remote], killer: Killer | None = None) -> History:
    """Ends the work of the clients, and returns their history."""
    for client in working:
        client.end()
    history = History([each for client in working for each in History.from_json(client.last_line()).operations])
    if not any(operation.note == "back" for operation in history.operations):
        raise Broken("nothing was written back, so nothing was proved")
    for node, at in killer.ends if killer else ():
        # Unanswered requests of a killed node took effect before its death, or never will.
        bounded(history, node, at)
    return history


def _plan(cluster: ProxiedCluster, node: int, seed: int, **more: Any) -> Plan:
    urls = {number: each.url for number, each in cluster.nodes.items()}
    account = cluster.account
    return Plan(urls, node, account.access_key, account.secret_key, BUCKET, seed, _CONNECTIONS, **more)
