"""The directory or a node fails while clients read and write coherent objects.

Every read fits one order of all writes.

Most reads are answered without the lake, so a write that some node does not hear of would be seen.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

from real.processes import await_that

from .directory_cluster import DirectoryCluster
from .hand import Hand
from .history import IF_ABSENT, History, Operation
from .plan_of_work import run_side_by_side
from .redis_servers import Redis, RedisCluster, RedisError, SentinelRedis, Server
from .settled import judge
from .stories import Broken

# Names of each fault: few, so that most reads find a name that was not written just now.
_NAMES = 6
_READERS = 2
_READ_PAUSE_S, _WRITE_PAUSE_S = 0.02, 1.0
_BEFORE_S = 2.5
# A write waits up to ten seconds when a node loses the directory, and twenty when a server was promoted.
_TIMEOUT_S = 40
# A name that is new to a directory settles in twenty seconds. A node that could not tell of a write attaches again
# half a minute after the last one.
_SETTLED_S = 180
_BY_CACHE = "HIT"
_FAILING_NODE = 2
# Less than the lag after which a master refuses writes.
_UNREPLICATED_S = 3


@dataclass(frozen=True)
class Fault:
    """`begin` lets something fail, and leaves the end to the stack. Clients work on for some seconds after it."""

    name: str
    begin: Callable[[ExitStack], None]
    lasts_s: float
    after_s: float
    """The node whose requests may fail; none of them otherwise."""
    at_node: int | None = None


def flushed(cluster: DirectoryCluster) -> Fault:
    """Returns the loss of all entries, in every server."""

    def begin(_: ExitStack) -> None:
        for server in cluster.redis.servers:
            if server.is_master():
                server.flush()

    return Fault("flushed", begin, 0, 8)


def frozen(cluster: DirectoryCluster) -> Fault:
    """Returns a stop of the first server, after which its clients' requests are late."""

    def begin(ends: ExitStack) -> None:
        cluster.redis.servers[0].freeze()
        ends.callback(cluster.redis.servers[0].thaw)

    return Fault("frozen", begin, 4, 14)


def killed(cluster: DirectoryCluster) -> Fault:
    """Returns the death of the first server, which comes back empty."""

    def begin(ends: ExitStack) -> None:
        cluster.redis.servers[0].kill()
        ends.callback(cluster.redis.servers[0].start)

    return Fault("killed", begin, 4, 14)


def slow(cluster: DirectoryCluster) -> Fault:
    """Returns answers that come too late for readers."""

    def begin(ends: ExitStack) -> None:
        ends.callback(cluster.redis.servers[0].slow_down())

    return Fault("slow", begin, 6, 4)


def full(cluster: DirectoryCluster) -> Fault:
    """Returns a server that takes no entry."""

    def begin(ends: ExitStack) -> None:
        cluster.redis.servers[0].fill()
        ends.callback(cluster.redis.servers[0].make_room)

    return Fault("full", begin, 4, 14)


def a_node_frozen(cluster: DirectoryCluster) -> Fault:
    """Returns a stop of a node. It wakes with answers of the lake that others have made old meanwhile."""

    def begin(ends: ExitStack) -> None:
        cluster.freeze(_FAILING_NODE)
        ends.callback(cluster.thaw, _FAILING_NODE)

    return Fault("a node frozen", begin, 9, 6)


def a_node_killed(cluster: DirectoryCluster) -> Fault:
    """Returns the death of a node in the middle of its writes. It comes back with its disk."""

    def begin(ends: ExitStack) -> None:
        cluster.kill(_FAILING_NODE)
        ends.callback(cluster.nodes[_FAILING_NODE].start)

    return Fault("a node killed", begin, 4, 14, at_node=_FAILING_NODE)


def a_master_replaced(cluster: DirectoryCluster) -> Fault:
    """Returns the death of a master whose replica lacks its latest entries, and takes over."""
    redis = _redis_cluster(cluster)

    def begin(ends: ExitStack) -> None:
        await_that("the Redis Cluster is whole", redis.is_whole, 60)
        master = redis.masters()[0]
        _dies_with_its_latest(redis, master, [redis.replica_of(master)], ends)

    return Fault("a master replaced", begin, 4, 24)


def a_master_cut_off(cluster: DirectoryCluster) -> Fault:
    """Returns a master that nodes reach and the other servers do not, until its replica takes over."""
    redis = _redis_cluster(cluster)

    def begin(ends: ExitStack) -> None:
        await_that("the Redis Cluster is whole", redis.is_whole, 60)
        master = redis.masters()[0]
        replica = redis.replica_of(master)
        ends.enter_context(redis.cut([master]))
        await_that("the replica takes over", replica.is_master, 30)

    return Fault("a master cut off from the others", begin, 4, 24)


def a_failover_that_loses_writes(cluster: DirectoryCluster) -> Fault:
    """Returns the death of a master whose replicas lack its latest seconds; Sentinels promote one."""
    redis = _sentinel_redis(cluster)

    def begin(ends: ExitStack) -> None:
        await_that("the replicas follow", redis.is_whole, 60)
        _dies_with_its_latest(redis, redis.master(), redis.replicas(), ends)

    return Fault("a failover that loses writes", begin, 4, 24)


def a_failover_past_the_master(cluster: DirectoryCluster) -> Fault:
    """Returns a master that nodes reach, and no other server. They go to the next one, which takes writes meanwhile."""
    redis = _sentinel_redis(cluster)

    def begin(ends: ExitStack) -> None:
        await_that("the replicas follow", redis.is_whole, 60)
        master, replicas = redis.master(), redis.replicas()
        ends.enter_context(redis.cut([master]))
        await_that("a replica takes over", lambda: any(replica.is_master() for replica in replicas), 30)
        await_that("the old master refuses writes", lambda: _refuses_writes(master), 30)
        await_that("nodes ask the new one", cluster.directory_answers, 30)

    return Fault("a failover past the master", begin, 2, 24)


def tell(cluster: DirectoryCluster, seed: int, *, faults: list[Callable[[DirectoryCluster], Fault]]) -> str:
    """Has each fault befall the directory while clients of all nodes read and write names of their own."""
    told = [make(cluster) for make in faults]
    keys = {fault.name: [f"coherent-{seed}-{at}-{name}" for name in range(_NAMES)] for at, fault in enumerate(told)}
    history = History([])
    for key in (key for some in keys.values() for key in some):
        cluster.hand(history, _TIMEOUT_S).put(key, f"{key}-0-900", 1)
    figures = [_befalls(cluster, fault, keys[fault.name], seed, history) for fault in told]
    judge(history)
    order = f"{len(history.writes())} writes; every read fits one order of all writes"
    return f"{'; '.join(figures)}; {order}"


@dataclass
class _Clients:
    """Readers and a writer at each node, until they are stopped."""

    cluster: DirectoryCluster
    keys: list[str]
    seed: int
    history: History
    is_over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Works until it is over."""
        nodes = list(self.cluster.nodes)
        readers = [self._worker(self._read, node, number) for node in nodes for number in range(_READERS)]
        run_side_by_side([*readers, *(self._worker(self._write, node, 0) for node in nodes)])

    def _worker(
        self, work: Callable[[Hand, int, random.Random, int], None], node: int, number: int
    ) -> Callable[[], None]:
        history = History([])
        hand = self.cluster.hand(history, _TIMEOUT_S)
        chance = random.Random(f"{self.seed} {self.keys[0]} {work.__name__} {node} {number}")

        def run() -> None:
            turn = 0
            while not self.is_over.is_set():
                turn += 1
                work(hand, node, chance, turn)
            self.history.operations.extend(history.operations)
            self.history.failures.extend(history.failures)

        return run

    def _read(self, hand: Hand, node: int, chance: random.Random, _: int) -> None:
        hand.read(chance.choice(self.keys), node, chance.choice(("GET", "GET", "HEAD")))
        time.sleep(_READ_PAUSE_S * chance.random() * 2)

    def _write(self, hand: Hand, node: int, chance: random.Random, turn: int) -> None:
        key = chance.choice(self.keys)
        kind = chance.choice(("PUT", "PUT", "PUT", "PUT", "IF-ABSENT", "DELETE", "DELETE-MANY"))
        name = f"{key}-{node}-{turn}-{chance.choice((900, 70_000))}"
        if kind == "DELETE":
            hand.delete(key, node)
        elif kind == "DELETE-MANY":
            hand.delete_all([key], node)
        else:
            hand.put(key, name, node, condition=IF_ABSENT if kind == "IF-ABSENT" else "")
        self.is_over.wait(_WRITE_PAUSE_S * chance.random() * 2)


def _befalls(cluster: DirectoryCluster, fault: Fault, keys: list[str], seed: int, history: History) -> str:
    await_that(f"before {fault.name}: all nodes answer for the lake", lambda: _is_settled(cluster, keys), _SETTLED_S)
    clients = _Clients(cluster, keys, seed, history)
    before, failed_before = len(history.operations), len(history.failures)
    work = threading.Thread(target=clients.run)
    work.start()
    try:
        time.sleep(_BEFORE_S)
        with ExitStack() as ends:
            fault.begin(ends)
            time.sleep(fault.lasts_s)
        time.sleep(fault.after_s)
    finally:
        clients.is_over.set()
        work.join()
    failures = [each for each in history.failures[failed_before:] if f" at {fault.at_node}: " not in each]
    if failures:
        raise Broken(f"{fault.name}: {len(failures)} requests failed: {failures[:5]}")
    reads = [each for each in history.operations[before:] if each.kind in ("GET", "HEAD")]
    for node in cluster.nodes:
        if not any(_is_of_cache(each) and each.node == node for each in reads):
            raise Broken(f"{fault.name}: node {node} asked the lake for every read, so nothing was proved")
    share = sum(map(_is_of_cache, reads)) / len(reads)
    return f"{fault.name}: {len(reads)} reads, {share:.0%} without the lake"


def _is_settled(cluster: DirectoryCluster, keys: list[str]) -> bool:
    """Returns whether every node answers for every name without the lake."""
    looked = History([])
    hand = cluster.hand(looked, _TIMEOUT_S)
    for _ in range(2):
        looked.operations.clear()
        for node in cluster.nodes:
            for key in keys:
                with suppress(OSError):
                    hand.read(key, node)
    # An absent object is asked for at the lake each time.
    return all(_is_of_cache(each) or not each.value for each in looked.operations)


def _is_of_cache(read: Operation) -> bool:
    return read.note == _BY_CACHE


def _dies_with_its_latest(redis: Redis, master: Server, replicas: Sequence[Server], ends: ExitStack) -> None:
    """Kills a master that could not reach its replicas for some seconds, and waits until one takes over."""
    ends.callback(master.start)
    with redis.cut(replicas, [master]):
        time.sleep(_UNREPLICATED_S)
        had = master.offset()
        master.kill()
        await_that("a replica takes over", lambda: any(replica.is_master() for replica in replicas), 30)
    promoted = next(replica for replica in replicas if replica.is_master())
    if promoted.offset("second_repl_offset") >= had:
        raise Broken("the failover lost no write, so it proves nothing")


def _refuses_writes(server: Server) -> bool:
    try:
        server.ask("SET", "of-the-story", "")
    except RedisError:
        return True
    return False


def _sentinel_redis(cluster: DirectoryCluster) -> SentinelRedis:
    if not isinstance(cluster.redis, SentinelRedis):
        raise TypeError("this fault is one of Sentinels")
    return cluster.redis


def _redis_cluster(cluster: DirectoryCluster) -> RedisCluster:
    if not isinstance(cluster.redis, RedisCluster):
        raise TypeError("this fault is one of a Redis Cluster")
    return cluster.redis
