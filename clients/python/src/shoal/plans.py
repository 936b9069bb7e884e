"""The plan of a cluster. Names are those of docs/reference/openapi.yaml."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal, cast

from shoal._sizes import size_text
from shoal.errors import PlanFailed, ShoalError

if TYPE_CHECKING:
    from shoal._answer import Answer

PlanState = Literal["waiting", "running", "done", "failed", "stopped"]

_OVER = ("done", "failed", "stopped")


@dataclass(frozen=True)
class PlanBytes:
    """Bytes of a plan: in all, those that it was to have fetched by now, and those that are there."""

    total: int
    planned: int
    done: int
    from_lake: int
    from_peers: int

    @classmethod
    def _of(cls, answer: Answer) -> PlanBytes:
        return cls(
            total=answer.integer("total"),
            planned=answer.integer("planned"),
            done=answer.integer("done"),
            from_lake=answer.integer("from_lake"),
            from_peers=answer.integer("from_peers"),
        )


@dataclass(frozen=True)
class JobCounts:
    """Jobs of a plan by how they stand. docs/how-to/plan.md explains the five words."""

    waiting: int
    at_risk: int
    met: int
    missed: int
    unplanned: int

    @classmethod
    def _of(cls, answer: Answer) -> JobCounts:
        return cls(
            waiting=answer.integer("waiting"),
            at_risk=answer.integer("at_risk"),
            met=answer.integer("met"),
            missed=answer.integer("missed"),
            unplanned=answer.integer("unplanned"),
        )

    def __str__(self) -> str:
        counts = {
            "met": self.met,
            "missed": self.missed,
            "at risk": self.at_risk,
            "waiting": self.waiting,
            "unplanned": self.unplanned,
        }
        return ", ".join(f"{count} {word}" for word, count in counts.items() if count) or "none"


@dataclass(frozen=True)
class TroubledJob:
    """A job that is at risk or has missed its deadline: `status` is at-risk or missed."""

    job: str
    status: str
    submit: datetime
    deadline: datetime

    @classmethod
    def _of(cls, answer: Answer) -> TroubledJob:
        return cls(
            job=answer.text("job"),
            status=answer.text("status"),
            submit=answer.time("submit"),
            deadline=answer.time("deadline"),
        )


@dataclass(frozen=True)
class Transfer:
    """A transfer that is under way. `planned_bytes` is what was to be there by now, `bytes_per_second` as planned."""

    file: str
    bytes: int
    planned_bytes: int
    done_bytes: int
    bytes_per_second: int

    @classmethod
    def _of(cls, answer: Answer) -> Transfer:
        return cls(
            file=answer.text("file"),
            bytes=answer.integer("bytes"),
            planned_bytes=answer.integer("planned_bytes"),
            done_bytes=answer.integer("done_bytes"),
            bytes_per_second=answer.integer("bytes_per_second"),
        )


@dataclass(frozen=True)
class PlanIssue:
    """Something of a file that was not as planned, and when it was so the last time."""

    at: datetime
    file: str
    error: str

    @classmethod
    def _of(cls, answer: Answer) -> PlanIssue:
        return cls(at=answer.time("at"), file=answer.text("file"), error=answer.text("error"))


@dataclass(frozen=True)
class Replanned:
    """The last new plan: why, and by the planner, by the node's simple rule, or by nothing if none could be made."""

    at: datetime
    why: str
    by: str
    detail: str | None

    @classmethod
    def _of(cls, answer: Answer) -> Replanned:
        return cls(
            at=answer.time("at"), why=answer.text("why"), by=answer.text("by"), detail=answer.text_or_none("detail")
        )


@dataclass(frozen=True)
class Plan:
    """A snapshot of a plan of the cluster.

    `troubled`, `transfers` and `issues` name some of each. `planned_count` is the number of jobs to which the plan
    promises their deadlines. Later releases of nodes may have other states than those of PlanState. A text of a plan
    is one line that says how far it is.
    """

    id: str
    kind: str
    identity: str | None
    created: datetime
    accepted_by: str
    document_bytes: int
    starts: datetime
    ends: datetime
    job_count: int
    planned_count: int
    transfer_count: int
    replaces: str | None
    forgotten: datetime
    state: PlanState
    detail: str | None
    coordinator: str | None
    started: datetime | None
    ended: datetime | None
    bytes: PlanBytes
    jobs: JobCounts
    troubled: tuple[TroubledJob, ...]
    transfers: tuple[Transfer, ...]
    issues: tuple[PlanIssue, ...]
    replans: int
    replanned: Replanned | None

    @property
    def is_over(self) -> bool:
        """Whether the plan has come to an end: done, failed or stopped."""
        return self.state in _OVER

    def __str__(self) -> str:
        on = f" on {self.coordinator}" if self.coordinator and not self.is_over else ""
        fetched = f"{size_text(self.bytes.done)} of {size_text(self.bytes.total)}"
        detail = f" ({self.detail})" if self.detail else ""
        return f"plan {self.id}: {self.state}{on}{detail}, {fetched}, jobs: {self.jobs}"

    def _failure(self) -> ShoalError | None:
        return PlanFailed(self) if self.state != "done" else None

    @classmethod
    def _of(cls, answer: Answer) -> Plan:
        replanned = answer.part_or_none("replanned")
        return cls(
            id=answer.text("id"),
            kind=answer.text("kind"),
            identity=answer.text_or_none("identity"),
            created=answer.time("created"),
            accepted_by=answer.text("accepted_by"),
            document_bytes=answer.integer("document_bytes"),
            starts=answer.time("starts"),
            ends=answer.time("ends"),
            job_count=answer.integer("job_count"),
            planned_count=answer.integer("planned_count"),
            transfer_count=answer.integer("transfer_count"),
            replaces=answer.text_or_none("replaces"),
            forgotten=answer.time("forgotten"),
            state=cast("PlanState", answer.text("state")),
            detail=answer.text_or_none("detail"),
            coordinator=answer.text_or_none("coordinator"),
            started=answer.time_or_none("started"),
            ended=answer.time_or_none("ended"),
            bytes=PlanBytes._of(answer.part("bytes")),
            jobs=JobCounts._of(answer.part("jobs")),
            troubled=tuple(TroubledJob._of(job) for job in answer.parts("troubled")),
            transfers=tuple(Transfer._of(transfer) for transfer in answer.parts("transfers")),
            issues=tuple(PlanIssue._of(issue) for issue in answer.parts("issues")),
            replans=answer.integer("replans"),
            replanned=None if replanned is None else Replanned._of(replanned),
        )
