"""The state of a node, and its view of an object. Names are those of docs/reference/openapi.yaml."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from shoal._answer import FALSE_IF_ABSENT, FromAnswer
from shoal._sizes import size_text
from shoal.errors import ShoalError
from shoal.tasks import Hint

if TYPE_CHECKING:
    from collections.abc import Mapping

HandoffState = Literal["serving", "draining", "drained"]


@dataclass(frozen=True)
class Version(FromAnswer):
    """The version of an object that a node knows."""

    id: str
    etag: str
    size_bytes: int
    block_bytes: int
    blocks: int


@dataclass(frozen=True)
class Pin(FromAnswer):
    """A pin of an object on a node: the task that pinned it, when the pin ends, and the hint if it is one's."""

    task: str
    until: datetime
    hint: Hint | None


@dataclass(frozen=True)
class Worth(FromAnswer):
    """What an eviction policy thinks of a block."""

    weight: int
    since: int


@dataclass(frozen=True)
class Block(FromAnswer):
    """A block of an object on a node. `here` is resident, arriving, evicted, refused or unasked.

    `brought_by` is the task that brought it, while no reader has asked for it since.
    """

    index: int
    here: str
    brought_by: str | None
    pinned: bool = field(metadata=FALSE_IF_ABSENT)
    reason: str | None
    worth: Worth | None
    decision: str | None
    layer: str
    homes: tuple[str, ...]


@dataclass(frozen=True)
class DirectoryEntry(FromAnswer):
    """What the directory has about a block."""

    index: int
    holders: tuple[str, ...]
    claimant: str | None
    global_weight: int
    extensions: tuple[str, ...]


@dataclass(frozen=True)
class Completeness(FromAnswer):
    """How complete a group of an object's blocks is in a layer, as a node with a c2p policy knows it.

    `missing` are the blocks that readers used lately and that no node is known to hold, `held` says how many each
    node holds.
    """

    layer: str
    first: int
    blocks: int
    percent: float
    read: int
    missing: tuple[int, ...]
    held: Mapping[str, int]


@dataclass(frozen=True)
class Explanation(FromAnswer):
    """Which blocks of an object a node holds, its pins and quotas there, and why.

    `version` is None if it knows none.
    """

    node: str
    version: Version | None
    pins: tuple[Pin, ...]
    quotas: tuple[str, ...]
    blocks: tuple[Block, ...]
    completeness: tuple[Completeness, ...]
    entries: tuple[DirectoryEntry, ...]


@dataclass(frozen=True)
class Member(FromAnswer):
    """A living node: its place, its addresses, and how it differs from the node that answers."""

    name: str
    topology: str
    s3: str
    peer: str | None
    admin: str
    state: str
    load: float | None
    differs: tuple[str, ...]


@dataclass(frozen=True)
class Members(FromAnswer):
    """The living nodes that a node knows. `self` is the node that answers."""

    self: str
    members: tuple[Member, ...]


@dataclass(frozen=True)
class NodeIdentity(FromAnswer):
    """The node that answers."""

    name: str
    topology: str
    version: str


@dataclass(frozen=True)
class Condition(FromAnswer):
    """What is out of order on a node. docs/reference/status.md names the conditions."""

    condition: str
    detail: str
    unready: bool
    advice: str


@dataclass(frozen=True)
class Readiness(FromAnswer):
    """Whether clients should be sent to a node: the parts of it that are not there, and its conditions."""

    ready: bool
    missing: tuple[str, ...]
    conditions: tuple[Condition, ...]


@dataclass(frozen=True)
class Handoff(FromAnswer):
    """How far a node is in giving its blocks to other nodes.

    It drains until no object of it is dirty and every block was offered; no node took the `blocks_kept`. A text of it
    is one line.
    """

    state: HandoffState
    objects_dirty: int
    blocks_left: int
    blocks_given: int
    bytes_given: int
    blocks_kept: int

    @property
    def is_over(self) -> bool:
        """Whether the node gives no block away: it is drained, or it serves."""
        return self.state in ("serving", "drained")

    def __str__(self) -> str:
        parts = [f"{self.state}, blocks: {self.blocks_given} given ({size_text(self.bytes_given)})"]
        counts = {"left": self.blocks_left, "kept": self.blocks_kept}
        parts += [f"{count} {word}" for word, count in counts.items() if count]
        if self.objects_dirty:
            parts.append(f"dirty objects: {self.objects_dirty}")
        return ", ".join(parts)

    def _failure(self) -> ShoalError | None:
        return DrainEnded(self) if self.state == "serving" else None


class DrainEnded(ShoalError):
    """A node that was to be drained serves again. `handoff` is its last state."""

    def __init__(self, handoff: Handoff) -> None:
        hint = "the order was taken back, or the node was started again: give it again"
        super().__init__("the node is not drained: it serves again", hint=hint)
        self.handoff = handoff


@dataclass(frozen=True)
class Flush(FromAnswer):
    """How far the last order to flush is. `order` is its number since the start of the node; 0: there was none.

    `left` objects were not tried; `failed` ones stay dirty, and the node tries them again. `error` says why the dirty
    objects could not be listed. A text of it is one line.
    """

    order: int
    running: bool
    below: str | None
    left: int
    flushed: int
    failed: int
    error: str | None

    @property
    def is_over(self) -> bool:
        """Whether every object was tried."""
        return not self.running

    def __str__(self) -> str:
        parts = [f"{self.flushed} flushed"]
        parts += [f"{count} {word}" for word, count in {"left": self.left, "failed": self.failed}.items() if count]
        parts += [self.error] if self.error else []
        return f"flush of {self.below or 'all'}, objects: {', '.join(parts)}"

    def _failure(self) -> ShoalError | None:
        return FlushFailed(self) if self.failed or self.error is not None else None


class FlushFailed(ShoalError):
    """Objects could not be flushed, or it is no longer known whether they were. `flush` is the last state."""

    def __init__(self, flush: Flush, reason: str | None = None) -> None:
        message = reason or (
            f"no object was flushed: {flush.error}"
            if flush.error is not None
            else f"{flush.failed} of {flush.failed + flush.flushed} objects could not be flushed"
        )
        super().__init__(message, hint="objects that are not at the lake stay dirty, and the node tries them again")
        self.flush = flush


@dataclass(frozen=True)
class Packs(FromAnswer):
    """How far the last order about packs is. `order` is its number since the start of the node; 0: there was none.

    `what` is `unpack`, `rebuild` or `rebuild-from-packs`; `below` is the prefix of the rule. `left` objects are still
    packed, `done` were unpacked, or are the tables that the map has now; `failed` objects stay packed, or packs cannot
    be read.
    """

    order: int
    running: bool
    what: str
    below: str
    left: int
    done: int
    failed: int
    error: str | None


@dataclass(frozen=True)
class WriteBackStatus(FromAnswer):
    """What the lake does not have: objects that were written through this node, bytes of the objects of all nodes."""

    objects: int
    bytes: int
    flush: Flush
    packs: Packs | None


@dataclass(frozen=True)
class PinTotals(FromAnswer):
    """The pinned objects of a node, their bytes, and the most bytes that pins may take."""

    objects: int
    bytes: int
    bytes_max: int


@dataclass(frozen=True)
class StoreStatus(FromAnswer):
    """The blocks of a node."""

    capacity_bytes: int
    resident_bytes: int
    blocks: int
    pins: PinTotals


@dataclass(frozen=True)
class TaskTotals(FromAnswer):
    """Tasks of the cluster by state, those that this node runs, and the records that all nodes know."""

    queued: int
    running: int
    done: int
    failed: int
    cancelled: int
    at_risk: int
    running_here: int
    records: int
    record_bytes: int


@dataclass(frozen=True)
class Status(FromAnswer):
    """The state of a node: the part of `/status` that clients may rely on. `drain` is None if it caches alone."""

    node: NodeIdentity
    conditions: tuple[Condition, ...]
    store: StoreStatus
    tasks: TaskTotals
    write_back: WriteBackStatus
    drain: Handoff | None
