"""Reads maps of packed objects as `docs/reference/map-format.md` describes them, without any help of Shoal."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

# Of a ULID as text.
_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_MAGIC = b"Shoal map, format 1\n"
_END_BYTES = 4 + len(_MAGIC) + 8
# What a row begins with, in place of the number of a common entry.
_TOMBSTONE, _OWN_ENTRY = 0, 1


@dataclass(frozen=True)
class Place:
    """The bytes of an object in a pack."""

    pack: str
    offset: int
    length: int
    crc32: int

    def cut(self, pack: bytes) -> bytes:
        """Returns the bytes of the object. Raises if they are not what the map says."""
        data = pack[self.offset : self.offset + self.length]
        if len(data) != self.length or zlib.crc32(data) != self.crc32:
            raise ValueError(f"pack {self.pack} has other bytes than the map says")
        return data


class _Reader:
    """The numbers and strings of a table."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, count: int) -> bytes:
        """Returns the next bytes."""
        taken = self._data[self._at : self._at + count]
        if len(taken) != count:
            raise ValueError("the table ends early")
        self._at += count
        return taken

    def number(self, form: str) -> int:
        """Returns the next number in a form of `struct`."""
        number: int = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        return number

    def sized(self) -> bytes:
        """Returns `4 + n`."""
        return self.take(self.number("<I"))

    def varint(self) -> int:
        """Returns `v`."""
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def has_more(self) -> bool:
        """Returns whether bytes are left."""
        return self._at < len(self._data)


class _Table:
    """One table."""

    def __init__(self, data: bytes) -> None:
        length = struct.unpack("<I", data[-_END_BYTES : -_END_BYTES + 4])[0]
        if data[-_END_BYTES + 4 : -8] != _MAGIC:
            raise ValueError("no table")
        tail = _Reader(data[-_END_BYTES - length : -_END_BYTES])
        self.number = tail.number("<Q")
        self.newer, self.older = (_numbers(tail.sized()) for _ in range(2))
        tail.sized()  # what is common to rows
        packs = tail.sized()
        self._packs = [_ulid(packs[at : at + 16]) for at in range(0, len(packs), 16)]
        self._blocks = list(_blocks(data, tail.sized()))

    def rows(self) -> Iterator[tuple[str, Place | None]]:
        """Returns all rows; the place of a tombstone is None."""
        for block in self._blocks:
            reader, key = _Reader(block), b""
            while reader.has_more():
                shared = reader.varint()
                key = key[:shared] + reader.take(reader.varint())
                yield key.decode(), self._place(_Reader(reader.take(reader.varint())))

    def _place(self, row: _Reader) -> Place | None:
        common = row.varint()
        if common == _TOMBSTONE:
            return None
        if common == _OWN_ENTRY:
            raise ValueError("this reader knows no rows with an entry of their own")
        row.varint()  # the sequence
        return Place(self._packs[row.varint()], row.varint(), row.varint(), row.number("<I"))


@dataclass(frozen=True)
class Map:
    """The numbers of the tables of a map, newest rows first, and where they find each object."""

    tables: list[int]
    places: dict[str, Place]


def read(newest: int, table: Callable[[int], bytes]) -> Map:
    """Reads the map whose newest table has this number. `table` returns the bytes of a table by its number."""
    last = _Table(table(newest))
    tables = [*last.newer, last.number, *last.older]
    places: dict[str, Place] = {}
    hidden: set[str] = set()
    for number in tables:
        for key, place in _Table(table(number)).rows():
            if place and key not in hidden:
                places[key] = place
            hidden.add(key)
    return Map(tables, places)


def _numbers(tables: bytes) -> list[int]:
    return [number for number, _, _ in struct.iter_unpack("<QQQ", tables)]


def _blocks(data: bytes, index: bytes) -> Iterator[bytes]:
    reader, start = _Reader(index), 0
    while reader.has_more():
        end = reader.number("<Q")
        reader.take(8)
        reader.sized()
        yield data[start:end]
        start = end


def _ulid(data: bytes) -> str:
    number = int.from_bytes(data, "big")
    return "".join(_DIGITS[number >> shift & 31] for shift in range(125, -1, -5))
