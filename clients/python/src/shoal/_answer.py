"""Reads objects of JSON member by member. Members that the client does not know are left alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Callable, TypeVar

from shoal.errors import UnexpectedAnswer

_T = TypeVar("_T")

# RFC 3339; datetime.fromisoformat of older Pythons takes neither Z nor every length of a fraction.
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d+))?(?:[Zz]|([+-]\d\d:\d\d))")


def time_of(text: str) -> datetime:
    """Returns the time that a node has written, in UTC. Raises ValueError."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a time")
    day, clock, fraction, offset = match.groups()
    fraction = (fraction or "")[:6].ljust(6, "0")
    return datetime.fromisoformat(f"{day}T{clock}.{fraction}{offset or '+00:00'}").astimezone(timezone.utc)


def text_of(time: datetime) -> str:
    """Returns a time as nodes read it. Raises ValueError if it has no time zone."""
    if time.tzinfo is None:
        raise ValueError("the time has no time zone: give datetime(..., tzinfo=timezone.utc), or a timedelta from now")
    return time.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Answer:
    """An object of JSON, and its place in the answer for the message of an error."""

    def __init__(self, value: object, place: str) -> None:
        self._members = _as_mapping(value, place)
        self._place = place

    def text(self, name: str) -> str:
        """Returns a member that is there."""
        return self._needed(name, _as_text)

    def text_or_none(self, name: str) -> str | None:
        """Returns a member that may be absent or null; the same holds for its siblings."""
        return self._optional(name, _as_text)

    def integer(self, name: str) -> int:
        """Returns a member that is there."""
        return self._needed(name, _as_integer)

    def integer_or_none(self, name: str) -> int | None:
        """Returns a member that may be absent."""
        return self._optional(name, _as_integer)

    def number(self, name: str) -> float:
        """Returns a member that is there."""
        return self._needed(name, _as_number)

    def number_or_none(self, name: str) -> float | None:
        """Returns a member that may be absent."""
        return self._optional(name, _as_number)

    def boolean(self, name: str) -> bool:
        """Returns a member that is there."""
        return self._needed(name, _as_boolean)

    def boolean_or_false(self, name: str) -> bool:
        """Returns a member whose absence means false."""
        return self._optional(name, _as_boolean) or False

    def time(self, name: str) -> datetime:
        """Returns a member that is there."""
        return self._needed(name, _as_time)

    def time_or_none(self, name: str) -> datetime | None:
        """Returns a member that may be absent."""
        return self._optional(name, _as_time)

    def part(self, name: str) -> Answer:
        """Returns a member that is there."""
        return self._needed(name, Answer)

    def part_or_none(self, name: str) -> Answer | None:
        """Returns a member that may be absent."""
        return self._optional(name, Answer)

    def parts(self, name: str) -> list[Answer]:
        """Returns the objects of a list; of none if it is absent."""
        return self._optional(name, _list_of(Answer)) or []

    def texts(self, name: str) -> tuple[str, ...]:
        """Returns the texts of a list; none if it is absent."""
        return tuple(self._optional(name, _list_of(_as_text)) or ())

    def integers(self, name: str) -> tuple[int, ...]:
        """Returns the numbers of a list; none if it is absent."""
        return tuple(self._optional(name, _list_of(_as_integer)) or ())

    def integers_by_name(self, name: str) -> dict[str, int]:
        """Returns the numbers that are the members of a member."""
        members = self._needed(name, _as_mapping)
        return {key: _as_integer(value, f"{self._place}.{name}.{key}") for key, value in members.items()}

    def by_name(self, name: str) -> dict[str, Answer]:
        """Returns the objects that are the members of a member."""
        members = self._needed(name, _as_mapping)
        return {key: Answer(value, f"{self._place}.{name}.{key}") for key, value in members.items()}

    def _needed(self, name: str, parse: Callable[[object, str], _T]) -> _T:
        if name not in self._members:
            raise UnexpectedAnswer(f"{self._place}.{name} is missing in the answer", hint=_HINT)
        return parse(self._members[name], f"{self._place}.{name}")

    def _optional(self, name: str, parse: Callable[[object, str], _T]) -> _T | None:
        value = self._members.get(name)
        return None if value is None else parse(value, f"{self._place}.{name}")


_HINT = "ask the admin port of a node, with a client of the same release"


def _wrong(place: str, wanted: str, value: object) -> UnexpectedAnswer:
    return UnexpectedAnswer(f"{place} is {value!r:.80}, not {wanted}", hint=_HINT)


def _as_mapping(value: object, place: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise _wrong(place, "an object", value)
    return value


def _as_text(value: object, place: str) -> str:
    if not isinstance(value, str):
        raise _wrong(place, "a text", value)
    return value


def _as_integer(value: object, place: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong(place, "a whole number", value)
    return value


def _as_number(value: object, place: str) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise _wrong(place, "a number", value)
    return float(value)


def _as_boolean(value: object, place: str) -> bool:
    if not isinstance(value, bool):
        raise _wrong(place, "true or false", value)
    return value


def _as_time(value: object, place: str) -> datetime:
    try:
        return time_of(_as_text(value, place))
    except ValueError:
        raise _wrong(place, "a time", value) from None


def _list_of(parse: Callable[[object, str], _T]) -> Callable[[object, str], list[_T]]:
    def parse_list(value: object, place: str) -> list[_T]:
        if not isinstance(value, list):
            raise _wrong(place, "a list", value)
        return [parse(item, f"{place}[{index}]") for index, item in enumerate(value)]

    return parse_list
