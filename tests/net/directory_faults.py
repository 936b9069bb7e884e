"""The directory fails in every way while clients read and write: no byte is wrong, and no read needs a second try."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from real.processes import await_that

from . import changer, reader
from .cluster import BACK, BUCKET, Remote
from .directory_cluster import DirectoryCluster
from .history import History
from .objects import Read, ranges, whole
from .reader import Outcome
from .redis_servers import Entry, RedisCluster, Server
from .settled import judge, read_everywhere
from .stories import Broken

# Objects that all nodes hold from the beginning, so that all their entries are known.
_STEADY, _STEADY_BYTES = 12, 1 << 20
_STEADY_ENTRIES = _STEADY * 4 * 3
# Objects that every node reads once, in the same order, while faults come and go.
_COLD, _COLD_BYTES = 400, 300_000
_PAUSE_S = 0.25
# Objects that the nodes read when a replica has lost its master: enough for some entries at each master.
_MORE = 24
_BEFORE_S, _WHILE_S = 0.5, 2.0
# Entries are told within this time, and those that are lost are told again.
_TOLD_S = 30
# A write waits up to ten seconds when a node loses the directory, and twenty when a server was promoted.
_TIMEOUT_S = 40


@dataclass
class _Clients:
    """Clients of each node: one reads cold objects, one changes names."""

    readers: list[Remote]
    changers: list[Remote]

    def ended(self) -> tuple[list[Outcome], History]:
        """Ends the work of all, and returns what they saw."""
        for client in (*self.readers, *self.changers):
            client.end()
        outcomes = [Outcome.from_json(client.last_line()) for client in self.readers]
        histories = [History.from_json(client.last_line()) for client in self.changers]
        operations = [each for history in histories for each in history.operations]
        return outcomes, History(operations, [each for history in histories for each in history.failures])


@dataclass
class _Directory:
    """The directory of a story, and the entries that it must have after each fault."""

    cluster: DirectoryCluster
    seed: int
    steady: set[Entry]
    figures: list[str] = field(default_factory=list)

    @contextmanager
    def fault(self, name: str, *, is_silent: bool, lasts_s: float = _WHILE_S) -> Iterator[ExitStack]:
        """Begins a fault, whose end the block leaves to the stack. Waits until all is told again after the end.

        With `is_silent` some node must have noticed that the directory does not answer.
        """
        before = self.cluster.unanswered()
        with ExitStack() as ends:
            yield ends
            time.sleep(lasts_s)
        ended = time.monotonic()
        if is_silent and self.cluster.unanswered() == before:
            raise Broken(f"{name}: no node noticed it, so nothing was proved")
        await_that(f"{name}: the directory answers all nodes again", self.cluster.directory_answers, _TOLD_S)
        await_that(f"{name}: every entry is told again", self.is_told, ended + _TOLD_S - time.monotonic())
        self.figures.append(f"{name} {time.monotonic() - ended:.1f} s")
        time.sleep(_BEFORE_S)

    def is_told(self) -> bool:
        """Returns whether the directory has all entries of the steady objects."""
        return self.steady <= self.cluster.redis.entries()

    def forgets(self, servers: Sequence[Server]) -> None:
        """Flushes that server of these that has the most entries of the steady objects."""
        entries = {server: len(self.steady & set(server.entries())) for server in servers}
        server = max(entries, key=entries.__getitem__)
        if not entries[server]:
            raise Broken("no server has an entry, so nothing was proved")
        server.flush()

    def hears_of_more(self, server: Server) -> None:
        """Has all nodes hold more objects; their entries at this server belong to those that must last."""
        keys = [f"more-{self.seed}-{number}" for number in range(_MORE)]
        for key in keys:
            self.cluster.put(key, _COLD_BYTES)
        _judge_reads(_read(self.cluster, [whole(key, _COLD_BYTES) for key in keys]))
        versions = [self.cluster.version(1, key).encode() for key in keys]

        def told() -> set[Entry]:
            return {entry for entry in server.entries() if any(version in entry[0] for version in versions)}

        await_that("all nodes have told what they hold", lambda: _held_by_all(told()), _TOLD_S)
        self.steady |= told()


def one_redis(cluster: DirectoryCluster, seed: int) -> str:
    """One Redis is killed, flushed, frozen, slow and full."""
    return _tell(cluster, seed, lambda directory: _faults_of_one(directory, cluster.redis.servers[0]))


def redis_cluster(cluster: DirectoryCluster, seed: int, *, is_long: bool) -> str:
    """Masters of a Redis Cluster are killed, frozen, flushed, and cut off."""
    redis = cluster.redis
    if not isinstance(redis, RedisCluster):
        raise TypeError("this story is about a Redis Cluster")
    return _tell(cluster, seed, lambda directory: _faults_of_a_cluster(directory, redis, is_long))


def _faults_of_one(directory: _Directory, redis: Server) -> None:
    with directory.fault("killed", is_silent=True) as ends:
        redis.kill()
        ends.callback(redis.start)
    with directory.fault("flushed", is_silent=False, lasts_s=0):
        directory.forgets([redis])
    with directory.fault("frozen", is_silent=True) as ends:
        redis.freeze()
        ends.callback(redis.thaw)
    with directory.fault("slow", is_silent=True) as ends:
        ends.callback(redis.slow_down())
    with directory.fault("full", is_silent=True) as ends:
        redis.fill()
        ends.callback(redis.make_room)


def _faults_of_a_cluster(directory: _Directory, redis: RedisCluster, is_long: bool) -> None:
    def whole() -> tuple[Server, Server]:
        """Waits until nothing is left of earlier faults; returns a master and its replica."""
        await_that("the Redis Cluster is whole", redis.is_whole, 60)
        master = redis.masters()[0]
        return master, redis.replica_of(master)

    def replaced(replica: Server) -> None:
        await_that("the replica takes over", replica.is_master, 30)

    master, replica = whole()
    with directory.fault("a master that had written alone killed", is_silent=True) as ends:
        replica.freeze()
        master.ask("CLIENT", "KILL", "TYPE", "replica")
        directory.hears_of_more(master)
        master.kill()
        ends.callback(master.start)
        replica.thaw()
        replaced(replica)
    master, replica = whole()
    with directory.fault("a master frozen", is_silent=True) as ends:
        master.freeze()
        ends.callback(master.thaw)
        replaced(replica)
    with directory.fault("a master flushed", is_silent=False, lasts_s=0):
        whole()
        directory.forgets(redis.masters())
    master, replica = whole()
    with directory.fault("a master cut off from the others", is_silent=False) as ends:
        ends.enter_context(redis.cut([master]))
        replaced(replica)
    if not is_long:
        return
    master, replica = whole()
    with directory.fault("a master cut off from all", is_silent=True) as ends:
        ends.enter_context(redis.cut([master], also_from_nodes=True))
        replaced(replica)
    master, replica = whole()
    with directory.fault("a master killed", is_silent=True) as ends:
        master.kill()
        ends.callback(master.start)
        replaced(replica)


def _held_by_all(entries: set[Entry]) -> bool:
    """Returns whether there are entries, and each block of them is held by three nodes."""
    holders = Counter(entry[:2] for entry in entries)
    return bool(holders) and set(holders.values()) == {3}


def _tell(cluster: DirectoryCluster, seed: int, faults: Callable[[_Directory], None]) -> str:
    directory = _Directory(cluster, seed, _steady_entries(cluster, seed))
    for key in _cold_keys(seed):
        cluster.put(key, _COLD_BYTES)
    clients = _clients(cluster, seed)
    time.sleep(_BEFORE_S)
    faults(directory)
    outcomes, history = clients.ended()
    reads = _judge(cluster, outcomes, history)
    writes = [write for write in history.writes() if write.is_acknowledged]
    through = sum(write.note == "through" for write in writes)
    return (
        f"everything told again after: {', '.join(directory.figures)}; "
        f"{sum(outcome.reads for outcome in outcomes)} reads of cold objects, {cluster.hops()['brought']} blocks "
        f"between nodes, {len(writes)} writes ({through} through) and {reads} reads of {len(history.keys())} names; "
        "0 failed, 0 at the second try, 0 lost, 0 wrong"
    )


def _steady_entries(cluster: DirectoryCluster, seed: int) -> set[Entry]:
    """Has all nodes hold some objects; returns the entries of these."""
    keys = [f"steady-{seed}-{number}" for number in range(_STEADY)]
    for key in keys:
        cluster.put(key, _STEADY_BYTES)
    outcomes = _read(cluster, [read for key in keys for read in ranges(key, _STEADY_BYTES, 300_000)])
    _judge_reads(outcomes)
    await_that("all nodes have told what they hold", lambda: len(cluster.redis.entries()) == _STEADY_ENTRIES, 30)
    return cluster.redis.entries()


def _read(cluster: DirectoryCluster, reads: Sequence[Read], **settings: object) -> list[Outcome]:
    readers = [_reader(cluster, node, reads, **settings) for node in cluster.nodes]
    for each in readers:
        each.go()
    return [Outcome.from_json(each.last_line()) for each in readers]


def _reader(cluster: DirectoryCluster, node: int, reads: Sequence[Read], **settings: object) -> Remote:
    account = cluster.account
    url = cluster.nodes[node].url
    plan = reader.Plan([url], account.access_key, account.secret_key, BUCKET, reads, **settings)  # type: ignore[arg-type]
    return Remote(None, "net.reader", plan.to_json())


def _cold_keys(seed: int) -> list[str]:
    return [f"cold-{seed}-{number}" for number in range(_COLD)]


def _clients(cluster: DirectoryCluster, seed: int) -> _Clients:
    urls = {number: node.url for number, node in cluster.nodes.items()}
    account = cluster.account
    cold = [whole(key, _COLD_BYTES) for key in _cold_keys(seed)]
    clients = _Clients([], [])
    for node in cluster.nodes:
        clients.readers.append(_reader(cluster, node, cold, connections=1, pause_s=_PAUSE_S))
        who = (account.access_key, account.secret_key)
        plan = changer.Plan(urls, node, *who, BUCKET, seed, timeout_s=_TIMEOUT_S, modes=("through", "around"))
        clients.changers.append(Remote(None, "net.changer", plan.to_json()))
    for client in (*clients.readers, *clients.changers):
        client.go()
    return clients


def _judge(cluster: DirectoryCluster, outcomes: Sequence[Outcome], history: History) -> int:
    """Fails if a byte is wrong, a read failed, or a write is lost; returns the number of reads of changed names."""
    _judge_reads(outcomes)
    if all(outcome.reads == _COLD for outcome in outcomes):
        raise Broken("all cold objects were read before the last fault, so little was proved")
    if history.failures:
        raise Broken(f"{len(history.failures)} requests failed: {history.failures[:3]}")
    if not any(write.note == "through" for write in history.writes()):
        raise Broken("nothing was written through, so nothing was proved")
    read_everywhere(cluster, history, history.keys(), list(cluster.nodes), BACK)
    judge(history)
    return sum(operation.is_read for operation in history.operations)


def _judge_reads(outcomes: Sequence[Outcome]) -> None:
    for node, outcome in enumerate(outcomes, 1):
        if outcome.wrong:
            raise Broken(f"node {node} gave bytes that are not the object's: {outcome.wrong[:3]}")
        if outcome.failed or outcome.healed:
            raise Broken(f"reads of node {node} failed: {outcome.failed[:3]} {dict(outcome.healed)}")
        if not outcome.reads:
            raise Broken(f"nothing was read from node {node}, so nothing was proved")
