"""What can go wrong. Every error is a ShoalError with a message, a status where a node gave one, and a hint.

Errors that carry the state of a task, a flush or a drain stand beside it, in `tasks` and `nodes`.
"""

from __future__ import annotations

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
    """400, 413 or 415: the order, the event or a parameter is not one that nodes take."""


class Unauthorized(Refused):
    """401: the node asks for a token or a certificate."""


class Forbidden(Refused):
    """403: no rule allows hints of the namespace; or the node, without tokens, takes orders over loopback only."""


class NotFound(Refused):
    """404: no task has this id, or no plan was handed over; or it is forgotten."""


class Conflict(Refused):
    """409: the task or the plan is over, or a node that caches alone is to drain."""


class NoRoom(Refused):
    """503: as many tasks as nodes remember, or no room for a list of objects, a plan, or one more hint."""


class NothingToDo(ShoalError):
    """204: all objects of an event notification were removed, and no task begins."""

    def __init__(self) -> None:
        super().__init__("all objects of the notification were removed: no task begins", status=204)


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
