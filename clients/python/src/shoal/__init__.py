"""Brings objects into a Shoal cache, keeps them there, carries plans out, and shows how far that is.

    import shoal

    client = shoal.Client("http://127.0.0.1:9100")
    task = client.prefetch("s3://bucket/prefix/")
    for task in client.wait(task):
        print(task)

The client speaks to the admin port of any node of a cluster. docs/reference/openapi.yaml describes that port.
"""

from shoal.client import Client
from shoal.errors import (
    Conflict,
    Forbidden,
    InvalidOrder,
    NoRoom,
    NotFound,
    NothingToDo,
    Refused,
    ShoalError,
    TimedOut,
    Unauthorized,
    UnexpectedAnswer,
    Unreachable,
)
from shoal.hints import FailedEvent, HintResult, HintUse
from shoal.nodes import (
    Block,
    Completeness,
    Condition,
    DirectoryEntry,
    DrainEnded,
    Explanation,
    Flush,
    FlushFailed,
    Handoff,
    HandoffState,
    Member,
    Members,
    NodeIdentity,
    Packs,
    Pin,
    PinTotals,
    Readiness,
    Status,
    StoreStatus,
    TaskTotals,
    Version,
    Worth,
    WriteBackStatus,
)
from shoal.plans import (
    Arrival,
    JobCounts,
    PlanDocument,
    PlanIssue,
    PlanProgress,
    Replanned,
    Transfer,
    TroubledJob,
)
from shoal.tasks import (
    ByteCounts,
    Hint,
    JobName,
    Manifest,
    NodeCounts,
    ObjectCounts,
    ObjectError,
    Task,
    TaskFailed,
    TaskKind,
    TaskState,
)

KiB = 1 << 10
MiB = 1 << 20
GiB = 1 << 30

__all__ = [
    "Arrival",
    "Block",
    "ByteCounts",
    "Client",
    "Completeness",
    "Condition",
    "Conflict",
    "DirectoryEntry",
    "DrainEnded",
    "Explanation",
    "FailedEvent",
    "Flush",
    "FlushFailed",
    "Forbidden",
    "GiB",
    "Handoff",
    "HandoffState",
    "Hint",
    "HintResult",
    "HintUse",
    "InvalidOrder",
    "JobCounts",
    "JobName",
    "KiB",
    "Manifest",
    "Member",
    "Members",
    "MiB",
    "NoRoom",
    "NodeCounts",
    "NodeIdentity",
    "NotFound",
    "NothingToDo",
    "ObjectCounts",
    "ObjectError",
    "Packs",
    "Pin",
    "PinTotals",
    "PlanDocument",
    "PlanIssue",
    "PlanProgress",
    "Readiness",
    "Refused",
    "Replanned",
    "ShoalError",
    "Status",
    "StoreStatus",
    "Task",
    "TaskFailed",
    "TaskKind",
    "TaskState",
    "TaskTotals",
    "TimedOut",
    "Transfer",
    "TroubledJob",
    "Unauthorized",
    "UnexpectedAnswer",
    "Unreachable",
    "Version",
    "Worth",
    "WriteBackStatus",
]
