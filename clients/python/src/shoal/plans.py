"""Plans as nodes report them, beside what every task has. Names are those of docs/reference/openapi.yaml."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from shoal._answer import FromAnswer


@dataclass(frozen=True)
class PlanDocument(FromAnswer):
    """The document of a plan. `planned_jobs` is the number of jobs to which it promises their deadlines.

    `replaces` names the plan that was in force before.
    """

    bytes: int
    starts: datetime
    ends: datetime
    jobs: int
    planned_jobs: int
    transfers: int
    replaces: str | None


@dataclass(frozen=True)
class JobCounts(FromAnswer):
    """Jobs of a plan by how they stand. docs/how-to/plan.md explains the words."""

    waiting: int
    running: int
    at_risk: int
    met: int
    missed: int
    unread: int
    unplanned: int

    def __str__(self) -> str:
        counts = {
            "met": self.met,
            "missed": self.missed,
            "unread": self.unread,
            "running": self.running,
            "at risk": self.at_risk,
            "waiting": self.waiting,
            "unplanned": self.unplanned,
        }
        return ", ".join(f"{count} {word}" for word, count in counts.items() if count) or "none"


@dataclass(frozen=True)
class TroubledJob(FromAnswer):
    """A job that is at risk, has missed its deadline, or has read nothing: `status` is at-risk, missed or unread."""

    job: str
    status: str
    submit: datetime
    deadline: datetime


@dataclass(frozen=True)
class Transfer(FromAnswer):
    """A transfer that is under way. `planned_bytes` is what was to be there by now, `bytes_per_second` as planned."""

    file: str
    bytes: int
    planned_bytes: int
    done_bytes: int
    bytes_per_second: int


@dataclass(frozen=True)
class PlanIssue(FromAnswer):
    """Something of a file that was not as planned, and when it was so the last time."""

    at: datetime
    file: str
    error: str


@dataclass(frozen=True)
class Arrival(FromAnswer):
    """A job that was announced while the plan was in force, by the task `hint`. `why` it was refused, if it was."""

    hint: str
    job: str
    at: datetime
    why: str | None


@dataclass(frozen=True)
class Replanned(FromAnswer):
    """The last new plan: why, and by the planner, by the node's simple rule, or by nothing if none could be made."""

    at: datetime
    why: str
    by: str
    detail: str | None


@dataclass(frozen=True)
class PlanProgress(FromAnswer):
    """How far a plan is. `troubled`, `transfers`, `issues` and `arrivals` name some of each.

    `planned_bytes` is what it was to have fetched by now.
    """

    planned_bytes: int
    jobs: JobCounts
    troubled: tuple[TroubledJob, ...]
    transfers: tuple[Transfer, ...]
    issues: tuple[PlanIssue, ...]
    arrivals: tuple[Arrival, ...]
    replans: int
    replanned: Replanned | None
