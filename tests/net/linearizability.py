"""Whether operations on one name happened one after the other, each between its request and its answer.

The search is the one of Wing and Gong; as Lowe does, it remembers the states that it has visited. A state is the set of
placed operations and the value of the name after them. An operation can be placed next unless another operation, which
is not placed yet, ended before it began. An operation without an answer may have no effect. An operation without an end
need not be placed at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol, TypeVar

# Some seconds of search. Histories of a few dozen operations need hundreds.
_STATES_MAX = 300_000


class Undecided(Exception):
    """The search was given up."""


class Step(Protocol):
    """An operation, as the search sees it."""

    @property
    def began_s(self) -> float:
        """Returns the time before which the operation has no effect."""

    @property
    def ended_s(self) -> float:
        """Returns the time after which the operation has no effect."""

    @property
    def is_without_effect(self) -> bool:
        """Returns whether the operation changes nothing in any place."""

    @property
    def answered(self) -> bool:
        """Returns whether the operation must be placed."""

    def allows(self, value: str) -> bool:
        """Returns whether the operation can be placed where the name has this value."""

    def outcomes(self, value: str) -> Sequence[str]:
        """Returns the values that the name may have after the operation."""


AStep = TypeVar("AStep", bound=Step)


def explain(operations: Sequence[AStep], initial: str) -> AStep | None:
    """Returns None if some order explains all operations, otherwise one without a place in the longest order found."""
    ordered = sorted(operations, key=lambda operation: operation.began_s)
    all_placed = (1 << len(ordered)) - 1
    may_be_left = sum(1 << at for at, each in enumerate(ordered) if not each.answered and each.ended_s == math.inf)
    pending = [(0, initial)]
    seen = set(pending)
    longest = 0
    while pending:
        placed, value = pending.pop()
        if placed | may_be_left == all_placed:
            return None
        if placed.bit_count() > longest.bit_count():
            longest = placed
        for following in _following(ordered, placed, value):
            if following not in seen:
                seen.add(following)
                pending.append(following)
        if len(seen) > _STATES_MAX:
            raise Undecided(f"{len(ordered)} operations have more than {_STATES_MAX} orders")
    missing = all_placed & ~(longest | may_be_left)
    return min((each for at, each in enumerate(ordered) if missing >> at & 1), key=lambda each: each.ended_s)


def _following(ordered: Sequence[AStep], placed: int, value: str) -> list[tuple[int, str]]:
    """Returns the next states of the search. The search visits the last one first."""
    candidates: list[int] = []
    first_end = math.inf
    for at, operation in enumerate(ordered):
        if placed >> at & 1:
            continue
        if operation.began_s > first_end:
            break
        first_end = min(first_end, operation.ended_s)
        candidates.append(at)
    candidates = [at for at in candidates if ordered[at].began_s <= first_end and ordered[at].allows(value)]
    for at in candidates:
        # The operation fits now and changes nothing, so no order with a later place for it explains more.
        if ordered[at].is_without_effect:
            return [(placed | 1 << at, value)]
    # Writes without an answer are the last resort: most have had no effect that matters.
    candidates.sort(key=lambda at: (ordered[at].answered, -ordered[at].ended_s))
    following = []
    for at in candidates:
        for outcome in ordered[at].outcomes(value):
            # Without an end it may as well be left out.
            if ordered[at].answered or outcome != value or ordered[at].ended_s < math.inf:
                following.append((placed | 1 << at, outcome))
    return following
