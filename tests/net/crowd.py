"""A thousand readers of one node that go through the same objects together, each over a connection of its own.

The plan comes as one line of JSON on stdin, as for `net.reader`. All connections are open before the first read. The
readers begin one after the other, and go through the same steps: in each step every reader reads a range, and these
ranges cover the step's part of the objects many times over. A reader tries a failed read once more, at the next
endpoint.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from urllib.parse import urlsplit

from real.lakes import Account
from real.signing import encode_path, signed_headers

from .objects import PIECE, Read, piece
from .plan_of_work import follow
from .reader import Outcome

_HEAD_END = b"\r\n\r\n"
# A signature is valid for fifteen minutes.
_SIGNED_FOR_S = 300
_CONNECTING = 100


@dataclass(frozen=True)
class Plan:
    """The readers, and the objects: their keys and their size. Readers use the first endpoint while it answers."""

    endpoints: Sequence[str]
    access_key: str
    secret_key: str
    bucket: str
    keys: Sequence[str]
    size: int
    readers: int
    """The steps for each object, and the bytes of a read."""
    steps: int
    read_bytes: int
    timeout_s: float = 30
    """The time within which all readers begin."""
    arrival_s: float = 2

    def to_json(self) -> str:
        """Returns one line of JSON."""
        return json.dumps(asdict(self))

    def reads(self, reader: int) -> Iterator[Read]:
        """Yields the ranges that a reader reads, in order."""
        part = self.size // self.steps
        for key in self.keys:
            for step in range(self.steps):
                first = part * step + part * reader // self.readers
                yield Read(key, first, min(self.read_bytes, self.size - first), self.size)


class _Failed(Exception):
    """An attempt that a reader repeats."""


class _WrongBytes(Exception):
    """The answer has other bytes than the object: a failure that no retry excuses."""


class _Connection(asyncio.BufferedProtocol):
    """Compares an answer while it arrives. All connections of the process share one buffer."""

    _buffer = bytearray(PIECE)
    _view = memoryview(_buffer)

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[str] | None = None
        self._read = Read("", 0, 0, 0)
        self._head = bytearray()
        self._have, self._cache, self._is_body, self.is_open = 0, "", False, False

    async def ask(self, request: bytes, read: Read) -> str:
        """Sends a request and compares the answer; returns its `X-Cache`."""
        if self._transport is None or not self.is_open:
            raise _Failed("the connection is closed")
        self._read, self._have, self._is_body = read, 0, False
        self._head.clear()
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._waiting

    def close(self) -> None:
        """Ends the connection."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Is called by the loop."""
        self._transport, self.is_open = transport, True  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        """Is called by the loop."""
        self.is_open = False
        self._end(_Failed(f"the connection ended after {self._have} of {self._read.length} bytes: {exc}"))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Is called by the loop."""
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        """Is called by the loop."""
        if self._is_body:
            self._compare(self._buffer[:nbytes])
            return
        self._head += self._view[:nbytes]
        head, end, rest = bytes(self._head).partition(_HEAD_END)
        if end and self._understood(head):
            self._is_body = True
            self._compare(bytearray(rest))

    def _understood(self, head: bytes) -> bool:
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        self._cache = headers.get("x-cache", "none")
        if first.split(" ")[1] not in ("200", "206"):
            self._end(_Failed(first))
            self.close()
            return False
        if headers.get("content-length") != str(self._read.length):
            self._end(_WrongBytes(f"{self._read}: the answer has {headers.get('content-length')} bytes"))
            return False
        return True

    def _compare(self, data: bytearray) -> None:
        if not data and self._read.length:
            return
        # A bytearray compares by memcmp; a memoryview on the left would go byte by byte.
        is_too_much = self._have + len(data) > self._read.length
        if is_too_much or data != piece(self._read.key, self._read.first + self._have, len(data)):
            self._end(_WrongBytes(f"{self._read} before byte {self._have + len(data)}"))
        self._have += len(data)
        if self._have >= self._read.length:
            self._end(None)

    def _end(self, error: Exception | None) -> None:
        if self._waiting is None or self._waiting.done():
            return
        if error is None:
            self._waiting.set_result(self._cache)
        else:
            self._waiting.set_exception(error)


class _Reader:
    """One reader: a connection at a time, to the endpoint that answered last."""

    def __init__(self, crowd: _Crowd, number: int) -> None:
        self._crowd, self._number, self._endpoint = crowd, number, 0
        self._connection = _Connection()

    async def connect(self) -> None:
        """Opens the connection, if it is not open."""
        if self._connection.is_open:
            return
        parts = urlsplit(self._crowd.plan.endpoints[self._endpoint])
        loop = asyncio.get_running_loop()
        _, self._connection = await loop.create_connection(_Connection, parts.hostname, parts.port)

    async def run(self) -> None:
        """Does all reads."""
        await asyncio.sleep(self._crowd.plan.arrival_s * self._number / self._crowd.plan.readers)
        for read in self._crowd.plan.reads(self._number):
            if self._crowd.stopped:
                return
            await self._do(read)

    async def _do(self, read: Read) -> None:
        outcome, troubles = self._crowd.outcome, []
        for _ in range(2):
            try:
                async with asyncio.timeout(self._crowd.plan.timeout_s):
                    await self.connect()
                    cache = await self._connection.ask(self._crowd.request(self._endpoint, read), read)
                break
            except _WrongBytes as wrong:
                outcome.wrong.append(str(wrong))
                self._connection.close()
                return
            except (OSError, _Failed) as trouble:
                troubles.append(f"{type(trouble).__name__}: {trouble}"[:160])
                self._connection.close()
                self._connection = _Connection()
                self._endpoint = (self._endpoint + 1) % len(self._crowd.plan.endpoints)
        else:
            outcome.failed.append(f"{read}: " + "; then ".join(troubles))
            return
        outcome.reads += 1
        outcome.bytes += read.length
        outcome.cache[cache] += 1
        outcome.healed.update(troubles)


class _Crowd:
    """All readers and their common outcome."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.stopped = False
        self.outcome = Outcome()
        self._account = Account(plan.access_key, plan.secret_key)
        self._signed: dict[tuple[int, str], tuple[float, bytes]] = {}
        self._loop = asyncio.new_event_loop()
        self._readers = [_Reader(self, number) for number in range(plan.readers)]
        self._loop.run_until_complete(self._connect())

    def run(self) -> None:
        """Reads until the plan is done or `stopped`."""
        self.outcome.started_s = time.monotonic()
        self._loop.run_until_complete(self._run())
        self.outcome.ended_s = time.monotonic()

    def told(self) -> str:
        """Returns the outcome as JSON."""
        return self.outcome.to_json()

    def request(self, endpoint: int, read: Read) -> bytes:
        """Returns the head of a request. The range is not signed, so one signature serves all ranges."""
        signed_at, head = self._signed.get((endpoint, read.key), (0.0, b""))
        if not head or time.monotonic() > signed_at + _SIGNED_FOR_S:
            path = encode_path(self.plan.bucket, read.key)
            host = urlsplit(self.plan.endpoints[endpoint]).netloc
            headers = signed_headers(self._account, "GET", host, path)
            lines = (f"{name}: {value}\r\n" for name, value in headers.items())
            head = f"GET {path} HTTP/1.1\r\n{''.join(lines)}".encode()
            self._signed[endpoint, read.key] = time.monotonic(), head
        return head + (f"Range: {read.range}\r\n\r\n" if read.range else "\r\n").encode()

    async def _connect(self) -> None:
        for first in range(0, len(self._readers), _CONNECTING):
            await asyncio.gather(*(reader.connect() for reader in self._readers[first : first + _CONNECTING]))

    async def _run(self) -> None:
        await asyncio.gather(*(reader.run() for reader in self._readers))


def _understood(line: str) -> _Crowd:
    return _Crowd(Plan(**json.loads(line)))


if __name__ == "__main__":
    follow(_understood)
