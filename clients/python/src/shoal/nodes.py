"""The state of a node, and its view of an object. Names are those of docs/reference/openapi.yaml."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal, cast

from shoal._sizes import size_text
from shoal.errors import DrainEnded, FlushFailed, ShoalError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shoal._answer import Answer

HandoffState = Literal["serving", "draining", "drained"]


@dataclass(frozen=True)
class Version:
    """The version of an object that a node knows."""

    id: str
    etag: str
    size_bytes: int
    block_bytes: int
    blocks: int

    @classmethod
    def _of(cls, answer: Answer) -> Version:
        return cls(
            id=answer.text("id"),
            etag=answer.text("etag"),
            size_bytes=answer.integer("size_bytes"),
            block_bytes=answer.integer("block_bytes"),
            blocks=answer.integer("blocks"),
        )


@dataclass(frozen=True)
class Pin:
    """A pin of an object on a node: the task that pinned it, and when the pin ends."""

    task: str
    until: datetime

    @classmethod
    def _of(cls, answer: Answer) -> Pin:
        return cls(task=answer.text("task"), until=answer.time("until"))


@dataclass(frozen=True)
class Worth:
    """What an eviction policy thinks of a block."""

    weight: int
    since: int

    @classmethod
    def _of(cls, answer: Answer) -> Worth:
        return cls(weight=answer.integer("weight"), since=answer.integer("since"))


@dataclass(frozen=True)
class Block:
    """A block of an object on a node. `here` is resident, arriving, evicted, refused or unasked."""

    index: int
    here: str
    pinned: bool
    reason: str | None
    worth: Worth | None
    decision: str | None
    layer: str
    homes: tuple[str, ...]

    @classmethod
    def _of(cls, answer: Answer) -> Block:
        worth = answer.part_or_none("worth")
        return cls(
            index=answer.integer("index"),
            here=answer.text("here"),
            pinned=answer.boolean_or_false("pinned"),
            reason=answer.text_or_none("reason"),
            worth=None if worth is None else Worth._of(worth),
            decision=answer.text_or_none("decision"),
            layer=answer.text("layer"),
            homes=answer.texts("homes"),
        )


@dataclass(frozen=True)
class DirectoryEntry:
    """What the directory has about a block."""

    index: int
    holders: tuple[str, ...]
    claimant: str | None
    global_weight: int
    extensions: tuple[str, ...]

    @classmethod
    def _of(cls, answer: Answer) -> DirectoryEntry:
        return cls(
            index=answer.integer("index"),
            holders=answer.texts("holders"),
            claimant=answer.text_or_none("claimant"),
            global_weight=answer.integer("global_weight"),
            extensions=answer.texts("extensions"),
        )


@dataclass(frozen=True)
class Completeness:
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

    @classmethod
    def _of(cls, answer: Answer) -> Completeness:
        return cls(
            layer=answer.text("layer"),
            first=answer.integer("first"),
            blocks=answer.integer("blocks"),
            percent=answer.number("percent"),
            read=answer.integer("read"),
            missing=answer.integers("missing"),
            held=answer.integers_by_name("held"),
        )


@dataclass(frozen=True)
class Explanation:
    """Which blocks of an object a node holds, its pins there, and why. `version` is None if it knows none."""

    node: str
    version: Version | None
    pins: tuple[Pin, ...]
    blocks: tuple[Block, ...]
    completeness: tuple[Completeness, ...]
    entries: tuple[DirectoryEntry, ...]

    @classmethod
    def _of(cls, answer: Answer) -> Explanation:
        version = answer.part_or_none("version")
        return cls(
            node=answer.text("node"),
            version=None if version is None else Version._of(version),
            pins=tuple(Pin._of(pin) for pin in answer.parts("pins")),
            blocks=tuple(Block._of(block) for block in answer.parts("blocks")),
            completeness=tuple(Completeness._of(group) for group in answer.parts("completeness")),
            entries=tuple(DirectoryEntry._of(entry) for entry in answer.parts("entries")),
        )


@dataclass(frozen=True)
class Member:
    """A living node: its place, its addresses, and how it differs from the node that answers."""

    name: str
    topology: str
    s3: str
    peer: str | None
    admin: str
    state: str
    load: float | None
    differs: tuple[str, ...]

    @classmethod
    def _of(cls, answer: Answer) -> Member:
        return cls(
            name=answer.text("name"),
            topology=answer.text("topology"),
            s3=answer.text("s3"),
            peer=answer.text_or_none("peer"),
            admin=answer.text("admin"),
            state=answer.text("state"),
            load=answer.number_or_none("load"),
            differs=answer.texts("differs"),
        )


@dataclass(frozen=True)
class Members:
    """The living nodes that a node knows. `self` is the node that answers."""

    self: str
    members: tuple[Member, ...]

    @classmethod
    def _of(cls, answer: Answer) -> Members:
        members = tuple(Member._of(member) for member in answer.parts("members"))
        return cls(answer.text("self"), members)


@dataclass(frozen=True)
class NodeIdentity:
    """The node that answers."""

    name: str
    topology: str
    version: str

    @classmethod
    def _of(cls, answer: Answer) -> NodeIdentity:
        return cls(name=answer.text("name"), topology=answer.text("topology"), version=answer.text("version"))


@dataclass(frozen=True)
class Condition:
    """What is out of order on a node. docs/reference/status.md names the conditions."""

    condition: str
    detail: str
    unready: bool

    @classmethod
    def _of(cls, answer: Answer) -> Condition:
        return cls(condition=answer.text("condition"), detail=answer.text("detail"), unready=answer.boolean("unready"))


@dataclass(frozen=True)
class Readiness:
    """Whether clients should be sent to a node: the parts of it that are not there, and its conditions."""

    ready: bool
    missing: tuple[str, ...]
    conditions: tuple[Condition, ...]

    @classmethod
    def _of(cls, answer: Answer) -> Readiness:
        return cls(
            ready=answer.boolean("ready"),
            missing=answer.texts("missing"),
            conditions=tuple(Condition._of(condition) for condition in answer.parts("conditions")),
        )


@dataclass(frozen=True)
class Handoff:
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

    @classmethod
    def _of(cls, answer: Answer) -> Handoff:
        return cls(
            state=cast("HandoffState", answer.text("state")),
            objects_dirty=answer.integer("objects_dirty"),
            blocks_left=answer.integer("blocks_left"),
            blocks_given=answer.integer("blocks_given"),
            bytes_given=answer.integer("bytes_given"),
            blocks_kept=answer.integer("blocks_kept"),
        )


@dataclass(frozen=True)
class Flush:
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

    @classmethod
    def _of(cls, answer: Answer) -> Flush:
        return cls(
            order=answer.integer("order"),
            running=answer.boolean("running"),
            below=answer.text_or_none("below"),
            left=answer.integer("left"),
            flushed=answer.integer("flushed"),
            failed=answer.integer("failed"),
            error=answer.text_or_none("error"),
        )


@dataclass(frozen=True)
class WriteBackStatus:
    """What the lake does not have: objects that were written through this node, bytes of the objects of all nodes."""

    objects: int
    bytes: int
    flush: Flush

    @classmethod
    def _of(cls, answer: Answer) -> WriteBackStatus:
        return cls(
            objects=answer.integer("objects"),
            bytes=answer.integer("bytes"),
            flush=Flush._of(answer.part("flush")),
        )


@dataclass(frozen=True)
class PinTotals:
    """The pinned objects of a node, their bytes, and the most bytes that pins may take."""

    objects: int
    bytes: int
    bytes_max: int

    @classmethod
    def _of(cls, answer: Answer) -> PinTotals:
        return cls(
            objects=answer.integer("objects"), bytes=answer.integer("bytes"), bytes_max=answer.integer("bytes_max")
        )


@dataclass(frozen=True)
class StoreStatus:
    """The blocks of a node."""

    capacity_bytes: int
    resident_bytes: int
    blocks: int
    pins: PinTotals

    @classmethod
    def _of(cls, answer: Answer) -> StoreStatus:
        return cls(
            capacity_bytes=answer.integer("capacity_bytes"),
            resident_bytes=answer.integer("resident_bytes"),
            blocks=answer.integer("blocks"),
            pins=PinTotals._of(answer.part("pins")),
        )


@dataclass(frozen=True)
class TaskTotals:
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

    @classmethod
    def _of(cls, answer: Answer) -> TaskTotals:
        return cls(
            queued=answer.integer("queued"),
            running=answer.integer("running"),
            done=answer.integer("done"),
            failed=answer.integer("failed"),
            cancelled=answer.integer("cancelled"),
            at_risk=answer.integer("at_risk"),
            running_here=answer.integer("running_here"),
            records=answer.integer("records"),
            record_bytes=answer.integer("record_bytes"),
        )


@dataclass(frozen=True)
class Status:
    """The state of a node: the part of `/status` that clients may rely on. `drain` is None if it caches alone."""

    node: NodeIdentity
    conditions: tuple[Condition, ...]
    store: StoreStatus
    tasks: TaskTotals
    write_back: WriteBackStatus
    drain: Handoff | None

    @classmethod
    def _of(cls, answer: Answer) -> Status:
        drain = answer.part_or_none("drain")
        return cls(
            node=NodeIdentity._of(answer.part("node")),
            conditions=tuple(Condition._of(condition) for condition in answer.parts("conditions")),
            store=StoreStatus._of(answer.part("store")),
            tasks=TaskTotals._of(answer.part("tasks")),
            write_back=WriteBackStatus._of(answer.part("write_back")),
            drain=None if drain is None else Handoff._of(drain),
        )
