"""The bytes of every object, known without keeping them: noise that starts elsewhere for each key."""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass

# A prime, so that no size of blocks divides it.
_PERIOD = 1_048_573
# The number of bytes that a client compares at once.
PIECE = 1 << 18
_NOISE = random.Random(0).randbytes(_PERIOD)
_VIEW = memoryview(_NOISE + _NOISE[:PIECE])


@dataclass(frozen=True)
class Read:
    """A GET of `length` bytes from `first` on, of an object of `size` bytes."""

    key: str
    first: int
    length: int
    size: int

    @property
    def range(self) -> str:
        """Returns the header, or empty for the whole object."""
        return "" if self.length == self.size else f"bytes={self.first}-{self.first + self.length - 1}"


def whole(key: str, size: int) -> Read:
    """Returns a GET of the object."""
    return Read(key, 0, size, size)


def ranges(key: str, size: int, length: int) -> list[Read]:
    """Returns the object in pieces, in order."""
    return [Read(key, first, min(length, size - first), size) for first in range(0, size, length)]


def piece(key: str, first: int, length: int) -> memoryview:
    """Returns the bytes of the object from `first` on, `PIECE` at most."""
    start = (zlib.crc32(key.encode()) + first) % _PERIOD
    return _VIEW[start : start + length]


def contents(key: str, size: int) -> bytes:
    """Returns all bytes of the object."""
    return b"".join(piece(key, first, min(PIECE, size - first)) for first in range(0, size, PIECE))
