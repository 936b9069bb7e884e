"""Reads objects of JSON member by member. Members that the client does not know are left alone."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import Field, fields
from datetime import datetime, timedelta, timezone
from typing import Any, Callable, TypeVar, Union

from shoal.errors import UnexpectedAnswer

_T = TypeVar("_T")

# A time with a zone, or a while from now.
When = Union[datetime, timedelta]

# RFC 3339; datetime.fromisoformat of older Pythons takes neither Z nor every length of a fraction.
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d+))?(?:[Zz]|([+-]\d\d:\d\d))")


# Annotations of fields.
_OR_NONE = " | None"
_ITEMS = re.compile(r"tuple\[(.+), \.\.\.\]")
_VALUES = re.compile(r"Mapping\[str, (.+)\]")


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


def moment(when: When) -> str:
    """Returns a time, or the time after a while from now, as nodes read it. Raises ValueError as `text_of` does."""
    return text_of(datetime.now(timezone.utc) + when if isinstance(when, timedelta) else when)


# Metadata of a field of the type bool: the absence of the member means false.
FALSE_IF_ABSENT = {"absent": False}


class Answer:
    """An object of JSON, and its place in the answer for the message of an error."""

    def __init__(self, value: object, place: str) -> None:
        self._members = _as_mapping(value, place)
        self._place = place

    def text_or_none(self, name: str) -> str | None:
        """Returns a text that may be absent."""
        return self._optional(name, _as_text)

    def parts(self, name: str) -> list[Answer]:
        """Returns the objects of a list; of none if it is absent."""
        return self._optional(name, _list_of(Answer)) or []

    def member(self, field: Field[Any], owner: type) -> Any:
        """Returns the member that a field of a class is, as its annotation says."""
        name, kind = field.name, str(field.type)
        if field.metadata == FALSE_IF_ABSENT:
            return self._optional(name, _as_boolean) or False
        if kind.endswith(_OR_NONE):
            return self._optional(name, _reader(kind[: -len(_OR_NONE)], owner))
        items = _ITEMS.fullmatch(kind)
        if items:
            return tuple(self._optional(name, _list_of(_reader(items[1], owner))) or ())
        values = _VALUES.fullmatch(kind)
        if values:
            read, place = _reader(values[1], owner), f"{self._place}.{name}"
            members = self._needed(name, _as_mapping)
            return {key: read(value, f"{place}.{key}") for key, value in members.items()}
        return self._needed(name, _reader(kind, owner))

    def _needed(self, name: str, parse: Callable[[object, str], _T]) -> _T:
        if name not in self._members:
            raise UnexpectedAnswer(f"{self._place}.{name} is missing in the answer", hint=_HINT)
        return parse(self._members[name], f"{self._place}.{name}")

    def _optional(self, name: str, parse: Callable[[object, str], _T]) -> _T | None:
        value = self._members.get(name)
        return None if value is None else parse(value, f"{self._place}.{name}")


class FromAnswer:
    """A dataclass that is read from an answer: each field is the member with its name.

    A field whose type may be None may be absent, or null; a list that is absent is empty.
    """

    @classmethod
    def _of(cls: type[_T], answer: Answer) -> _T:
        members = {field.name: answer.member(field, cls) for field in fields(cls)}  # type: ignore[arg-type]
        return cls(**members)


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


def _reader(kind: str, owner: type) -> Callable[[object, str], Any]:
    """Returns what reads values of a type that an annotation in the module of `owner` names."""
    if kind in _PARSERS:
        return _PARSERS[kind]
    named = vars(sys.modules[owner.__module__])[kind]
    if isinstance(named, type) and issubclass(named, FromAnswer):
        return lambda value, place: named._of(Answer(value, place))
    # It is one of some words, and later releases may have others.
    return _as_text


def _list_of(parse: Callable[[object, str], _T]) -> Callable[[object, str], list[_T]]:
    def parse_list(value: object, place: str) -> list[_T]:
        if not isinstance(value, list):
            raise _wrong(place, "a list", value)
        return [parse(item, f"{place}[{index}]") for index, item in enumerate(value)]

    return parse_list


_PARSERS: dict[str, Callable[[object, str], Any]] = {
    "str": _as_text,
    "int": _as_integer,
    "float": _as_number,
    "bool": _as_boolean,
    "datetime": _as_time,
}
