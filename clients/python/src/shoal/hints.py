"""What became of hints, and of the events that were sent. Names are those of docs/reference/openapi.yaml."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from shoal._answer import FromAnswer
from shoal._sizes import size_text
from shoal.errors import UnexpectedAnswer
from shoal.tasks import Hint, JobName, Task, TaskState


@dataclass(frozen=True)
class HintUse(FromAnswer):
    """A hint, and what became of the bytes that it brought before their readers, on all nodes that answer.

    Readers asked for the `used_bytes` while they were there or on their way, and for the `evicted_bytes` too late.
    `wasted_bytes` are those that no reader asked for, of a hint that is over. `early_ms` is the mean time from
    arrival to first use, or None if nothing was used. `keeps` says whether the objects are kept now, `brought` when
    all inputs were there, `first_used` when the first reader came. A text of it is one line.
    """

    task: Task
    keeps: bool
    brought_bytes: int
    used_bytes: int
    evicted_bytes: int
    wasted_bytes: int
    early_ms: int | None
    brought: datetime | None
    first_used: datetime | None

    @property
    def id(self) -> str:
        """The id of the task."""
        return self.task.id

    @property
    def state(self) -> TaskState:
        """The state of the task. One that is done keeps its objects as long as `keeps` is true."""
        return self.task.state

    @property
    def hint(self) -> Hint:
        """What is read, and which job reads it."""
        if self.task.hint is None:
            raise UnexpectedAnswer(f"the task {self.id} is no hint", hint="use a client of the same release")
        return self.task.hint

    @property
    def reader(self) -> JobName:
        """The job or the stage that reads."""
        return self.hint.reader

    @property
    def stage(self) -> int:
        """The number of jobs or stages that end before the reader begins: 0 for the run itself."""
        return self.hint.stage

    @property
    def inputs(self) -> tuple[str, ...]:
        """What the reader reads: objects, or all objects below a prefix."""
        return self.hint.inputs

    def __str__(self) -> str:
        parts = [self.state + (", kept" if self.keeps else ""), f"{size_text(self.brought_bytes)} brought"]
        sizes = {"used": self.used_bytes, "evicted": self.evicted_bytes, "wasted": self.wasted_bytes}
        parts += [f"{size_text(size)} {word}" for word, size in sizes.items() if size]
        if self.early_ms is not None:
            parts.append(f"{self.early_ms / 1000:.1f} s early")
        return f"{self.reader} reads {' '.join(self.inputs)}: {', '.join(parts)}"


@dataclass(frozen=True)
class HintList(FromAnswer):
    """The answer of /hints."""

    hints: tuple[HintUse, ...]


@dataclass(frozen=True)
class FailedEvent(FromAnswer):
    """An event that the node did not take, by its place among all that were sent, counted from 0.

    A `retriable` one may be sent again later; any other will be refused again.
    """

    index: int
    reason: str
    retriable: bool


@dataclass(frozen=True)
class BatchSummary(FromAnswer):
    """Events of a batch, counted."""

    received: int
    successful: int
    failed: int
    retriable: int
    non_retriable: int


@dataclass(frozen=True)
class BatchAnswer(FromAnswer):
    """The answer to a batch of events. `index` of an event is its place in the batch."""

    status: str
    summary: BatchSummary
    failed_events: tuple[FailedEvent, ...]


@dataclass(frozen=True)
class HintResult:
    """What became of events: how many the node received and took, and those that it did not take."""

    received: int
    successful: int
    failed: tuple[FailedEvent, ...]
