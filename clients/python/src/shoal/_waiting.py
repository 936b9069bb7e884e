"""Follows what was ordered until it is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from shoal.errors import ShoalError, TimedOut, Unreachable

# A wait survives a node that restarts.
_SILENCE_S_MAX = 60.0


class Followed(Protocol):
    """What a node carries out: its state at one moment."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more happens."""

    def _failure(self) -> ShoalError | None:
        """Returns the error that a wait for a state that is over ends with."""


_State = TypeVar("_State", bound=Followed)


def states(
    look: Callable[[_State | None], _State], name: str, end: str, every: float, timeout: float | None
) -> Iterator[_State]:
    """Yields a state now and then every so many seconds, until it is over.

    `look` fetches it, and is given the one before. `name` names it in the error of a wait that ends after `timeout`
    seconds; `end` says there how it is ended. A node that is silent for less than a minute is waited for.
    """
    if not every > 0:
        raise ValueError("every is a number of seconds above 0")
    return _states(look, name, end, every, timeout)


def _states(
    look: Callable[[_State | None], _State], name: str, end: str, every: float, timeout: float | None
) -> Iterator[_State]:
    began = answered_at = time.monotonic()
    current: _State | None = None
    while True:
        try:
            current = look(current)
        except Unreachable:
            if time.monotonic() - answered_at > _SILENCE_S_MAX:
                raise
        else:
            answered_at = time.monotonic()
            yield current
            if current.is_over:
                failure = current._failure()
                if failure is not None:
                    raise failure
                return
        pause = every
        if timeout is not None:
            left = began + timeout - time.monotonic()
            if left <= 0:
                hint = f"it goes on: wait again, or {end}"
                raise TimedOut(f"{name} is not over after {timeout:g} s", hint=hint)
            pause = min(every, left)
        time.sleep(pause)
