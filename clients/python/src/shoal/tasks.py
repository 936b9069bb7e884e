"""Tasks: their orders and their progress. Names are those of docs/reference/openapi.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Literal

from shoal._answer import FALSE_IF_ABSENT, FromAnswer
from shoal._sizes import size_text
from shoal.errors import ShoalError
from shoal.plans import PlanDocument, PlanProgress

TaskKind = Literal["prefetch", "pin", "unpin", "evict", "cached", "plan", "hint"]
TaskState = Literal["queued", "running", "done", "failed", "cancelled"]

_OVER = ("done", "failed", "cancelled")


@dataclass(frozen=True)
class Manifest(FromAnswer):
    """The list of objects of a task: their number, and the bytes of the list itself."""

    objects: int
    bytes: int


@dataclass(frozen=True)
class JobName(FromAnswer):
    """The name of a job, unique within the namespace of its scheduler."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Hint(FromAnswer):
    """What a running job reads, now or next: `inputs` are objects, or all objects below a prefix.

    Objects below `awaited`, which is written for this reader, and below `short_lived`, which is of no use after the
    run, stay in their tier meanwhile. `priority` is 0 to 100; of the hints of a namespace those with the highest go
    first. `bytes` is the expected size of some inputs or of all.

    `stage` is the number of jobs or stages that end before the reader begins: 0 for the run itself. `parents` are the
    runs of which `run` is a part, the nearest first. `is_behind` says that the reader is a job after the run, and no
    part of it. `submit` is when the reader begins, if that is later than the event.
    """

    run: str
    parents: tuple[str, ...]
    reader: JobName
    stage: int
    is_behind: bool = field(metadata=FALSE_IF_ABSENT)
    inputs: tuple[str, ...]
    awaited: tuple[str, ...]
    short_lived: tuple[str, ...]
    priority: int
    bytes: int | None
    submit: datetime | None


@dataclass(frozen=True)
class ObjectCounts(FromAnswer):
    """Objects of a task. `total` is None until the lake has listed some, and grows while they are counted.

    `unchanged` are those of `done` for which there was nothing to do; `skipped` were left alone, such as objects
    that are dirty.
    """

    total: int | None
    done: int
    unchanged: int
    skipped: int
    failed: int


@dataclass(frozen=True)
class ByteCounts(FromAnswer):
    """Bytes of a task. `total` is None until sizes are known; `cached` of `done` were cached before."""

    total: int | None
    done: int
    cached: int
    from_lake: int
    from_peers: int
    pinned: int
    removed: int


@dataclass(frozen=True)
class ObjectError(FromAnswer):
    """An object that failed or was skipped, and why."""

    object: str
    error: str


@dataclass(frozen=True)
class NodeCounts(FromAnswer):
    """What a node holds of the objects of a task, or had removed."""

    blocks: int
    bytes: int


@dataclass(frozen=True)
class Task(FromAnswer):
    """A task of the cluster, as a node reported it at one moment.

    Only a plan has `document` and `plan`, and only what a hint began has `hint`. Later releases of
    nodes may have other kinds and states than those of TaskKind and TaskState. A text of a task is one line that says
    how far it is.
    """

    id: str
    kind: TaskKind
    uri: str | None
    identity: str | None
    to: str | None
    rate_bytes_per_second: int | None
    deadline: datetime | None
    until: datetime | None
    dry_run: bool = field(metadata=FALSE_IF_ABSENT)
    manifest: Manifest | None
    document: PlanDocument | None
    hint: Hint | None
    gathers: bool = field(metadata=FALSE_IF_ABSENT)
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
    counting: bool = field(metadata=FALSE_IF_ABSENT)
    bytes_per_second: int | None
    at_risk: bool
    plan: PlanProgress | None

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

        While the sizes of the objects are not known, it follows from their number and the task's start. None for a
        plan, which fetches when it is time.
        """
        if self.is_over or self.plan is not None:
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
        what = self.uri or self.id
        if self.manifest is not None:
            what = f"{self.manifest.objects} objects of a list"
        elif self.hint is not None:
            what = f"of {self.hint.reader}"
        parts: list[str] = [self.state] if self.is_over or self.state == "queued" else []
        fraction = self.fraction
        if fraction is not None and not self.is_over:
            parts.append(f"{int(fraction * 100)}%")
        parts.append(_of_total(size_text(self.bytes.done), self.bytes.total and size_text(self.bytes.total)))
        if self.plan is not None:
            parts.append(f"jobs: {self.plan.jobs}")
        else:
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


class TaskFailed(ShoalError):
    """A task ended as failed or cancelled. `task` is its last state, with its errors by object."""

    def __init__(self, task: Task) -> None:
        reason = task.detail or "; ".join(f"{error.object}: {error.error}" for error in task.errors[:3])
        message = f"the task {task.id} {'was ' if task.state == 'cancelled' else ''}{task.state}"
        super().__init__(f"{message}: {reason}" if reason else message)
        self.task = task


def _of_total(done: str, total: object) -> str:
    return done if total is None else f"{done} of {total}"
