"""The suite kills one node after the other, at random moments and requests, while clients change names at all nodes.

A round ends when clients have stopped, every name was read at every node, and the lake has everything. Most nodes
start again at once: the suite ends their session, for which the registry would wait some seconds. Some nodes stay dead
until others have taken over their work.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from real.processes import await_that

from .changer import Plan
from .cluster import BUCKET, Remote
from .history import History
from .proxied import ProxiedCluster
from .request_names import IDLE
from .settled import bounded, counted, settle
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
        """Nodes that are dead, or hurt in another way, until their futures are done."""
        self._returning: dict[int, Future[None]] = {}
        self.ends: list[tuple[int, float]] = []
        """The number of nodes that were killed at a request."""
        self.caught = 0

    def strike(self) -> None:
        """Kills one of the living nodes."""
        self._kill(self._next())

    def _next(self) -> int:
        """Chooses one of the living nodes; waits for a dead one first if too few live."""
        time.sleep(self._chance.uniform(*_BETWEEN_S))
        dead = [node for node, future in self._returning.items() if not future.done()]
        living = [node for node in self._cluster.nodes if node not in dead]
        if len(living) <= len(self._cluster.nodes) // 2:
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

        passed = self._cluster.proxy.passed(time.monotonic() - _LATELY_S)
        # Chance prefers frequent requests. Another node than this one may have made them.
        name = self._chance.choice([name for name in passed if name not in IDLE | _RARE] or ["entry written"])
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

    def _start_again(self, node: int, pause_s: float) -> None:
        if pause_s:
            self._cluster.end_session(node)
            time.sleep(pause_s)
        self._cluster.start_again(node)


def tell(
    cluster: ProxiedCluster,
    seed: int,
    kills: int,
    killer: type[Killer] = Killer,
    settled: Callable[[ProxiedCluster, History], None] = settle,
) -> str:
    """Runs rounds until the given number of nodes were killed; returns one line about them."""
    everything = History([])
    done = caught = 0
    while done < kills:
        number = min(_ROUND_KILLS, kills - done)
        history, at_requests = _round(killer, cluster, f"{seed} {done}", 1000 * seed + done, number)
        settled(cluster, history)
        everything.operations += history.operations
        done, caught = done + number, caught + at_requests
        if done < kills:
            print(f"{done} {killer.FAULTS}, seed {seed}: {counted(history)}", flush=True)
    return f"{done} {killer.FAULTS}, {caught} of them at a request, seed {seed}; " + counted(everything)


def clients(cluster: ProxiedCluster, seed: int) -> list[Remote]:
    """Starts one client for each node."""
    working = [Remote(None, "net.changer", _plan(cluster, node, seed).to_json()) for node in cluster.nodes]
    for client in working:
        client.go()
    return working


def ended(working: Sequence[Remote]) -> History:
    """Ends the work of the clients, and returns their history."""
    for client in working:
        client.end()
    history = History([each for client in working for each in History.from_json(client.last_line()).operations])
    if not any(operation.note == "back" for operation in history.operations):
        raise Broken("nothing was written back, so nothing was proved")
    return history


def _round(killing: type[Killer], cluster: ProxiedCluster, chance: str, seed: int, kills: int) -> tuple[History, int]:
    working = clients(cluster, seed)
    with ThreadPoolExecutor(len(cluster.nodes)) as pool:
        killer = killing(cluster, random.Random(chance), pool)
        for _ in range(kills):
            killer.strike()
        killer.wait()
    time.sleep(1)
    history = ended(working)
    _end_with_their_nodes(history, killer.ends)
    await_that("all nodes write back", cluster.all_write_back, 30)
    return history, killer.caught


def _plan(cluster: ProxiedCluster, node: int, seed: int) -> Plan:
    urls = {number: each.url for number, each in cluster.nodes.items()}
    account = cluster.account
    return Plan(urls, node, account.access_key, account.secret_key, BUCKET, seed, _CONNECTIONS)


def _end_with_their_nodes(history: History, ends: Sequence[tuple[int, float]]) -> None:
    """Notes that unanswered requests of a killed node took effect before its death, or never will."""
    for node, at in ends:
        bounded(history, node, at)
