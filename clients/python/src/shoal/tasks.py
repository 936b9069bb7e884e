"""Tasks: their orders and their progress. Names are those of docs/reference/openapi.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Literal, cast

from shoal._sizes import size_text
from shoal.errors import ShoalError, TaskFailed

if TYPE_CHECKING:
    from shoal._answer import Answer

TaskKind = Literal["prefetch", "pin", "unpin", "evict", "cached"]
TaskState = Literal["queued", "running", "done", "failed", "cancelled"]

_OVER = ("done", "failed", "cancelled")


@dataclass(frozen=True)
class Manifest:
    """The list of objects of a task: their number, and the bytes of the list itself."""

    objects: int
    bytes: int

    @classmethod
    def _of(cls, answer: Answer) -> Manifest:
        return cls(objects=answer.integer("objects"), bytes=answer.integer("bytes"))


@dataclass(frozen=True)
class ObjectCounts:
    """Objects of a task. `total` is None until the lake has listed some, and grows while they are counted.

    `unchanged` are those of `done` for which there was nothing to do; `skipped` were left alone, such as objects
    that are dirty.
    """

    total: int | None
    done: int
    unchanged: int
    skipped: int
    failed: int

    @classmethod
    def _of(cls, answer: Answer) -> ObjectCounts:
        return cls(
            total=answer.integer_or_none("total"),
            done=answer.integer("done"),
            unchanged=answer.integer("unchanged"),
            skipped=answer.integer("skipped"),
            failed=answer.integer("failed"),
        )


@dataclass(frozen=True)
class ByteCounts:
    """Bytes of a task. `total` is None until sizes are known; `cached` of `done` were cached before."""

    total: int | None
    done: int
    cached: int
    from_lake: int
    from_peers: int
    pinned: int
    removed: int

    @classmethod
    def _of(cls, answer: Answer) -> ByteCounts:
        return cls(
            total=answer.integer_or_none("total"),
            done=answer.integer("done"),
            cached=answer.integer("cached"),
            from_lake=answer.integer("from_lake"),
            from_peers=answer.integer("from_peers"),
            pinned=answer.integer("pinned"),
            removed=answer.integer("removed"),
        )


@dataclass(frozen=True)
class ObjectError:
    """An object that failed or was skipped, and why."""

    object: str
    error: str

    @classmethod
    def _of(cls, answer: Answer) -> ObjectError:
        return cls(object=answer.text("object"), error=answer.text("error"))


@dataclass(frozen=True)
class NodeCounts:
    """What a node holds of the objects of a task, or had removed."""

    blocks: int
    bytes: int

    @classmethod
    def _of(cls, answer: Answer) -> NodeCounts:
        return cls(blocks=answer.integer("blocks"), bytes=answer.integer("bytes"))


@dataclass(frozen=True)
class Task:
    """A snapshot of a task of the cluster.

    Later releases of nodes may have other kinds and states than those of TaskKind and TaskState. A text of a task
    is one line that says how far it is.
    """

    id: str
    kind: TaskKind
    uri: str | None
    identity: str | None
    to: str | None
    rate_bytes_per_second: int | None
    deadline: datetime | None
    until: datetime | None
    dry_run: bool
    manifest: Manifest | None
    gathers: bool
    created: datetime
    accepted_by: str
    forgotten: datetime
    state: TaskState
    detail: str | None
    runner: str | None
    started: datetime | None
    ended: datetime | None
    objects: ObjectCounts
    bytes: ByteCounts
    errors: tuple[ObjectError, ...]
    nodes: Mapping[str, NodeCounts]
    counting: bool
    bytes_per_second: int | None
    at_risk: bool

    @property
    def is_over(self) -> bool:
        """Whether the task has come to an end: done, failed or cancelled."""
        return self.state in _OVER

    @property
    def fraction(self) -> float | None:
        """The part that is done, 0 to 1: of the bytes, or of the objects while their sizes are not known."""
        objects = self.objects
        ended = objects.done + objects.skipped + objects.failed
        for done, total in ((self.bytes.done, self.bytes.total), (ended, objects.total)):
            if total:
                return min(done / total, 1.0)
        return None

    @property
    def eta(self) -> timedelta | None:
        """The time that the task still takes if it goes on as lately. None when that is not known, or it is over.

        While the sizes of the objects are not known, it follows from their number and the task's start.
        """
        if self.is_over:
            return None
        if self.bytes.total is not None:
            left = max(self.bytes.total - self.bytes.done, 0)
            return timedelta(seconds=-(-left // self.bytes_per_second)) if self.bytes_per_second else None
        ended = self.objects.done + self.objects.skipped + self.objects.failed
        if self.objects.total is None or self.started is None or not ended:
            return None
        lasted = max(datetime.now(timezone.utc) - self.started, timedelta())
        return timedelta(seconds=round((lasted / ended * max(self.objects.total - ended, 0)).total_seconds()))

    def __str__(self) -> str:
        what = self.uri or (f"{self.manifest.objects} objects of a list" if self.manifest else "-")
        parts: list[str] = [self.state] if self.is_over or self.state == "queued" else []
        fraction = self.fraction
        if fraction is not None and not self.is_over:
            parts.append(f"{int(fraction * 100)}%")
        parts.append(_of_total(size_text(self.bytes.done), self.bytes.total and size_text(self.bytes.total)))
        parts.append(f"{_of_total(str(self.objects.done), self.objects.total)} objects")
        if self.bytes_per_second is not None and not self.is_over:
            parts.append(f"{size_text(self.bytes_per_second)}/s")
        if self.eta is not None:
            parts.append(f"ETA {self.eta}")
        if self.objects.failed:
            parts.append(f"{self.objects.failed} failed")
        if self.at_risk:
            parts.append("deadline at risk")
        if self.detail:
            parts.append(self.detail)
        return f"{self.kind} {what}: {', '.join(parts)}"

    def _failure(self) -> ShoalError | None:
        return TaskFailed(self) if self.state != "done" else None

    @classmethod
    def _of(cls, answer: Answer) -> Task:
        manifest = answer.part_or_none("manifest")
        return cls(
            id=answer.text("id"),
            kind=cast("TaskKind", answer.text("kind")),
            uri=answer.text_or_none("uri"),
            identity=answer.text_or_none("identity"),
            to=answer.text_or_none("to"),
            rate_bytes_per_second=answer.integer_or_none("rate_bytes_per_second"),
            deadline=answer.time_or_none("deadline"),
            until=answer.time_or_none("until"),
            dry_run=answer.boolean_or_false("dry_run"),
            manifest=None if manifest is None else Manifest._of(manifest),
            gathers=answer.boolean_or_false("gathers"),
            created=answer.time("created"),
            accepted_by=answer.text("accepted_by"),
            forgotten=answer.time("forgotten"),
            state=cast("TaskState", answer.text("state")),
            detail=answer.text_or_none("detail"),
            runner=answer.text_or_none("runner"),
            started=answer.time_or_none("started"),
            ended=answer.time_or_none("ended"),
            objects=ObjectCounts._of(answer.part("objects")),
            bytes=ByteCounts._of(answer.part("bytes")),
            errors=tuple(ObjectError._of(error) for error in answer.parts("errors")),
            nodes={name: NodeCounts._of(counts) for name, counts in answer.by_name("nodes").items()},
            counting=answer.boolean_or_false("counting"),
            bytes_per_second=answer.integer_or_none("bytes_per_second"),
            at_risk=answer.boolean("at_risk"),
        )


def _of_total(done: str, total: object) -> str:
    return done if total is None else f"{done} of {total}"
