"""The test bed: a lake, nodes before it, nginx beside it, all with the same bytes."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from real.lakes import Account, Lake
from real.wire import send

from .client import read
from .load import Get

BUCKET = "bench"
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
# One random mebibyte, cut and repeated with a different start for each object: cheap to make, different everywhere.
_NOISE = random.Random(0).randbytes(MIB)


@dataclass(frozen=True)
class Server:
    """Something that is measured: a URL and the processes whose CPU time counts."""

    name: str
    url: str
    pids: Callable[[], Sequence[int]]


@dataclass
class Bed:
    """The places of the objects. Their bytes are the `contents` of their key and size."""

    lake: Lake
    """The folder that nginx serves."""
    root: Path
    scratch: Path
    sizes: dict[str, int] = field(default_factory=dict)

    @property
    def account(self) -> Account:
        """Returns the account that signs every request."""
        return self.lake.account

    def create_bucket(self) -> None:
        """Makes the bucket, and the folder of the same name."""
        (self.root / BUCKET).mkdir(parents=True)
        require_ok(send(self.lake.url, self.account, "PUT", BUCKET).status)

    def put(self, keys: Iterable[str], size: int) -> list[Get]:
        """Writes objects to the lake and beside it as files; returns the GETs of them."""
        keys = list(keys)
        with ThreadPoolExecutor(8 if size < MIB else 1) as pool:
            list(pool.map(lambda key: self._put_one(key, size), keys))
        return [Get(BUCKET, key) for key in keys]

    def expected(self, get: Get) -> memoryview:
        """Returns the bytes that must answer a GET."""
        whole = memoryview(contents(get.key, self.sizes[get.key]))
        if not get.range:
            return whole
        first, _, last = get.range.removeprefix("bytes=").partition("-")
        return whole[int(first) : int(last) + 1]

    def verify(self, server: Server, gets: Iterable[Get]) -> None:
        """Reads everything once: warms the server and proves that it serves the right bytes."""
        for get in gets:
            read(server.url, self.account, get, self.expected(get))

    def _put_one(self, key: str, size: int) -> None:
        body = contents(key, size)
        (self.root / BUCKET / key).write_bytes(body)
        require_ok(send(self.lake.url, self.account, "PUT", BUCKET, key, body=body).status)
        self.sizes[key] = size


@functools.lru_cache(maxsize=2)
def contents(key: str, size: int) -> bytes:
    """Bytes that belong to this key alone, with a period that no block size divides."""
    start = random.Random(key).randrange(MIB)
    period = _NOISE[start:] + _NOISE[:start] + key.encode()
    if size < len(period):
        return period[:size]
    return (period * (size // len(period) + 1))[:size]


def require_ok(status: int) -> None:
    """Raises if a step of the preparation failed."""
    if status != 200:
        raise RuntimeError(f"the lake answered {status} while the bench was prepared")
