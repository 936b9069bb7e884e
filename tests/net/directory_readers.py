"""Crowds of readers at three nodes read the same cold objects, which should cost the lake one read of each block."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from . import crowd
from .cluster import BUCKET, Remote
from .directory_cluster import ALL, DirectoryCluster
from .proxy import Trap
from .reader import Outcome
from .request_names import BLOCK_READ
from .stories import Broken

_PATIENCE_S = 600


@dataclass(frozen=True)
class Size:
    """The readers of each node, the objects, the steps of a reader through each object, and the bytes of a read.

    All readers are in the same step at about the same time.
    """

    readers: int
    objects: int
    object_bytes: int
    steps: int
    read_bytes: int

    @property
    def bytes(self) -> int:
        """Returns the bytes of all objects."""
        return self.objects * self.object_bytes


# Several readers of each node read each byte.
_CROWD = Size(readers=1_000, objects=2, object_bytes=16 << 20, steps=2, read_bytes=96 << 10)
# The blocks under way when a fault happens are few in comparison with these.
_LARGE = Size(readers=100, objects=64, object_bytes=16 << 20, steps=4, read_bytes=160 << 10)
# With these, two hundred thousand reads for each case.
_LONG = Size(readers=1_000, objects=32, object_bytes=16 << 20, steps=2, read_bytes=96 << 10)


@dataclass(frozen=True)
class _Case:
    """A fault when the lake has sent half of the bytes, and how often the lake may send each byte."""

    name: str
    size: Size
    lake_reads_max: float
    fault: Callable[[DirectoryCluster], None] | None = None


def _flush(cluster: DirectoryCluster) -> None:
    cluster.redis.servers[0].flush()


def _kill_the_claimant(cluster: DirectoryCluster) -> None:
    """Kills a node when the lake has sent a block for it, and before the node has the block."""

    def kill() -> None:
        if trap.request:
            cluster.kill(cluster.sender(trap.request))

    trap = cluster.proxy.set(Trap(ALL, BLOCK_READ, after=kill, loses_answer=True))
    if not trap.over.wait(_PATIENCE_S):
        raise Broken("no node fetches a block from the lake, so nothing was proved")
    if all(cluster.is_alive(node) for node in cluster.nodes):
        raise Broken("no node was killed, so nothing was proved")


_CASES = (
    _Case("undisturbed", _CROWD, 1.0),
    _Case("flushed", _LARGE, 1.02, _flush),
    _Case("claimant killed", _LARGE, 1.02, _kill_the_claimant),
)


def tell(cluster: DirectoryCluster, seed: int, *, is_long: bool) -> str:
    """Tells each case with cold nodes; returns the reads of the lake for each byte."""
    figures = []
    for number, case in enumerate(_CASES):
        size = _LONG if is_long else case.size
        keys = [f"crowd-{seed}-{number}-{each}" for each in range(size.objects)]
        for key in keys:
            cluster.put(key, size.object_bytes)
        if number:
            cluster.start_anew()
        lake_bytes, outcomes = _read(cluster, case, keys, size)
        figures.append(_figures(case, size, lake_bytes, outcomes))
        if not size.bytes <= lake_bytes <= case.lake_reads_max * size.bytes:
            raise Broken(
                f"the lake sent {lake_bytes} bytes of objects with {size.bytes}: {'; '.join(figures)}; requests "
                f"between nodes: {cluster.hops()}; requests without an answer of the directory: {cluster.unanswered()}"
            )
    return f"lake bytes for each byte: {'; '.join(figures)}"


def _read(cluster: DirectoryCluster, case: _Case, keys: list[str], size: Size) -> tuple[int, list[Outcome]]:
    crowds = [Remote(None, "net.crowd", _plan(cluster, node, keys, size).to_json()) for node in cluster.nodes]
    before = cluster.lake_bytes()
    for each in crowds:
        each.go()
    if case.fault:
        cluster.await_lake_bytes(before + size.bytes // 2, _PATIENCE_S)
        case.fault(cluster)
    outcomes = [Outcome.from_json(each.last_line()) for each in crowds]
    for node, outcome in zip(cluster.nodes, outcomes, strict=True):
        _judge(f"{case.name}, node {node}", outcome, size)
    # Reads ahead may still be under way.
    time.sleep(0.5)
    return cluster.lake_bytes() - before, outcomes


def _plan(cluster: DirectoryCluster, node: int, keys: list[str], size: Size) -> crowd.Plan:
    urls = [cluster.nodes[node].url, *(other.url for number, other in cluster.nodes.items() if number != node)]
    account = cluster.account
    return crowd.Plan(
        urls,
        account.access_key,
        account.secret_key,
        BUCKET,
        keys,
        size.object_bytes,
        size.readers,
        size.steps,
        size.read_bytes,
    )


def _judge(who: str, outcome: Outcome, size: Size) -> None:
    if outcome.wrong:
        raise Broken(f"{who}: {len(outcome.wrong)} readers were given wrong bytes: {outcome.wrong[:3]}")
    if outcome.failed:
        raise Broken(f"{who}: {len(outcome.failed)} reads failed twice: {outcome.failed[:3]}")
    if outcome.reads != size.readers * size.objects * size.steps:
        raise Broken(f"{who}: only {outcome.reads} reads, so nothing was proved")


def _figures(case: _Case, size: Size, lake_bytes: int, outcomes: list[Outcome]) -> str:
    seconds = max(each.ended_s for each in outcomes) - min(each.started_s for each in outcomes)
    return (
        f"{lake_bytes / size.bytes:.4f} {case.name} ({len(outcomes)} x {size.readers} connections, "
        f"{size.bytes >> 20} MiB, {sum(each.reads for each in outcomes)} reads of "
        f"{sum(each.bytes for each in outcomes) >> 20} MiB in {seconds:.0f} s, "
        f"{sum(each.healed.total() for each in outcomes)} at the second try)"
    )
