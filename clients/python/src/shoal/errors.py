"""What can go wrong. Every error is a ShoalError with a message, a status where a node gave one, and a hint."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.nodes import Flush, Handoff
    from shoal.tasks import Task

# Longer texts of a server are cut: it may be no admin port.
_TEXT_MAX = 2000
_HINT = "hint: "


class ShoalError(Exception):
    """Any failure of this package.

    `status` is the HTTP status, or None without an answer; `message` says what failed; `hint` says what to do
    about it, where something can be done.
    """

    def __init__(self, message: str, *, status: int | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n{_HINT}{self.hint}"


class Unreachable(ShoalError):
    """The node cannot be reached, or broke off. An order may have been taken if it was sent."""


class TimedOut(Unreachable):
    """The node did not answer in time, or what was waited for was not over in time. It may go on."""


class UnexpectedAnswer(ShoalError):
    """The answer is not one of an admin port, or not one that this version of the client understands."""


class Refused(ShoalError):
    """The node refuses the request."""


class InvalidOrder(Refused):
    """400, 413 or 415: the order or a parameter is not one that nodes take."""


class Unauthorized(Refused):
    """401: the node asks for a token or a certificate."""


class Forbidden(Refused):
    """403: the node takes orders over loopback only, as it has neither tokens nor certificates."""


class NotFound(Refused):
    """404: no task has this id, or no plan was handed over; or it is forgotten."""


class Conflict(Refused):
    """409: the task or the plan is over, or a node that caches alone is to drain."""


class NoRoom(Refused):
    """503: there are as many tasks as nodes remember, or no room for the list of objects or the plan."""


class TaskFailed(ShoalError):
    """A task ended as failed or cancelled. `task` is its last state, with its errors by object."""

    def __init__(self, task: Task) -> None:
        reason = task.detail or "; ".join(f"{error.object}: {error.error}" for error in task.errors[:3])
        message = f"the task {task.id} {'was ' if task.state == 'cancelled' else ''}{task.state}"
        super().__init__(f"{message}: {reason}" if reason else message)
        self.task = task


class NothingToDo(ShoalError):
    """204: all objects of an event notification were removed, and no task begins."""

    def __init__(self) -> None:
        super().__init__("all objects of the notification were removed: no task begins", status=204)


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


class DrainEnded(ShoalError):
    """A node that was to be drained serves again. `handoff` is its last state."""

    def __init__(self, handoff: Handoff) -> None:
        hint = "the order was taken back, or the node was started again: give it again"
        super().__init__("the node is not drained: it serves again", hint=hint)
        self.handoff = handoff


_BY_STATUS: dict[int, type[Refused]] = {
    400: InvalidOrder,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: InvalidOrder,
    415: InvalidOrder,
    503: NoRoom,
}


def of_answer(status: int, text: str) -> ShoalError:
    """Returns the error in an answer: plain text, whose last line may be a hint."""
    lines = text[:_TEXT_MAX].strip().splitlines()
    hint = None
    if lines and lines[-1].startswith(_HINT):
        hint = lines.pop()[len(_HINT) :]
    message = "\n".join(lines) or f"the node answered {status}"
    kind = _BY_STATUS.get(status, Refused if status >= 400 else UnexpectedAnswer)
    return kind(message, status=status, hint=hint)
