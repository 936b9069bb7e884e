"""A proxy between nodes and their lake, tier and registry that tells requests apart, and has faults happen at them.

Each node has a door of its own to each server. The proxy reads a whole request before it passes the request on, and a
whole answer before it passes the answer back. So a node that is killed has sent all of a request, or nothing of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from .request_names import BLOCK_READ, Request

_HEAD_BYTES_MAX = 1 << 20
# Nodes begin with as many connections as requests, all at once.
_BACKLOG = 4096
# A story of many faults has more requests than memory should keep. No story looks further back than this.
_PASSED_MAX = 100_000
# The pause between two looks at whether a request that is held back may go on.
_LOOK_S = 0.01
_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(eq=False)
class Trap:
    """A fault that waits for a request; at most one request is caught unless it `stays`."""

    node: int
    """The name of a request, or `lake`, `tier` or `registry` for all that go there."""
    name: str
    """The number of the request to catch, counted from the moment when the trap is set."""
    ordinal: int = 1
    """Called when the proxy has the whole request, and has not passed it on."""
    before: Callable[[], None] | None = None
    """The request goes on only after this time, whether or not the node still waits."""
    delay_s: float = 0
    """Sent to the node in place of an answer of the server, which gets no request."""
    answer: bytes = b""
    """Called when the proxy has the server's whole answer, and has not passed it back."""
    after: Callable[[], None] | None = None
    """Whether the proxy drops the request, or drops the answer, and ends the connection."""
    loses_request: bool = False
    loses_answer: bool = False
    stays: bool = False
    """The proxy reads the head of the request, and its body only once this is set."""
    reads_on: threading.Event | None = None
    caught: threading.Event = field(default_factory=threading.Event)
    """Set when the server has answered the request, or the proxy has dropped it."""
    over: threading.Event = field(default_factory=threading.Event)
    """The request that was caught last."""
    request: Request | None = None
    seen: int = 0

    def catches(self, request: Request) -> bool:
        """Counts the request, and returns whether the trap catches it."""
        if request.node != self.node or self.name not in (request.name, request.service):
            return False
        self.seen += 1
        return self.stays or self.seen == self.ordinal


@dataclass(frozen=True)
class Passed:
    """A request that came by."""

    at_s: float
    node: int
    name: str


class Proxy:
    """All doors, in a thread of their own. The proxy runs from the beginning of `with` to its end."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._lock = threading.Lock()
        self._traps: list[Trap] = []
        self._passed: deque[Passed] = deque(maxlen=_PASSED_MAX)
        """The task of each open connection, and its node. The loop alone would forget one whose node is dead."""
        self._open: dict[asyncio.Task[None], int] = {}
        """The bytes of blocks that the lake has sent, whether or not the node was still there."""
        self.block_bytes = 0
        """The id in the registry of each node that has begun a session."""
        self.node_ids: dict[int, str] = {}

    def __enter__(self) -> Proxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(_end_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def door(self, node: int, service: str, url: str) -> str:
        """Returns the URL at which a node finds the server at `url`."""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            if task is None:
                raise RuntimeError("a connection without a task")
            self._open[task] = node
            try:
                await _Connection(self, node, service, url).serve((reader, writer))
            finally:
                del self._open[task]

        starting = asyncio.start_server(serve, "127.0.0.1", 0, limit=_HEAD_BYTES_MAX, backlog=_BACKLOG)
        server = asyncio.run_coroutine_threadsafe(starting, self._loop).result()
        return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    def set(self, trap: Trap) -> Trap:
        """Sets a trap, which waits from now on."""
        with self._lock:
            self._traps.append(trap)
        return trap

    def is_silent(self, node: int) -> bool:
        """Returns whether all connections of a dead node have ended, and its last requests are carried out."""
        return node not in list(self._open.values())

    def take_away(self, trap: Trap) -> None:
        """Takes a trap away, so that it catches no more requests."""
        with self._lock, contextlib.suppress(ValueError):
            self._traps.remove(trap)

    def passed(self, since_s: float, node: int | None = None) -> list[str]:
        """Returns the names of the requests of a node, or of all nodes, since a moment, in order."""
        with self._lock:
            return [each.name for each in self._passed if each.at_s >= since_s and node in (None, each.node)]

    def held(self, request: Request) -> Trap | None:
        """Returns the trap that holds the rest of a request back, of which the proxy has the head."""
        with self._lock:
            held = next((trap for trap in self._traps if trap.reads_on and trap.catches(request)), None)
            if held:
                held.request = request
                self._traps.remove(held)
        return held

    def note(self, request: Request) -> Trap | None:
        """Notes a request; returns the trap that catches it."""
        for key in request.registry_keys("requestPut"):
            if key.startswith(b"n/"):
                self.node_ids[request.node] = key[2:].decode()
        with self._lock:
            self._passed.append(Passed(time.monotonic(), request.node, request.name))
            caught = next((trap for trap in self._traps if not trap.reads_on and trap.catches(request)), None)
            if caught:
                caught.request = request
            if caught and not caught.stays:
                self._traps.remove(caught)
        return caught


async def _end_all() -> None:
    """Ends every connection."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class _Connection:
    """One connection of a node, and the one behind it."""

    def __init__(self, proxy: Proxy, node: int, service: str, url: str) -> None:
        self._proxy, self._node, self._service = proxy, node, service
        parts = urlsplit(url)
        self._server = parts.hostname, parts.port
        self._behind: _Streams | None = None
        """The trap that has held a request back."""
        self._held: Trap | None = None

    async def serve(self, streams: _Streams) -> None:
        """Serves the connection until one side ends it."""
        reader, writer = streams
        # Cancelled: the whole proxy ends.
        with contextlib.suppress(OSError, EOFError, asyncio.LimitOverrunError, asyncio.CancelledError):
            while await self._pass_one(reader, writer):
                pass
        writer.close()
        if self._behind:
            self._behind[1].close()
        if self._held:
            self._held.over.set()

    async def _pass_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Passes one request and its answer on; returns whether the connection goes on."""
        request = await self._request(reader, writer)
        trap = self._proxy.note(request)
        if trap is None:
            writer.write(await self._forward(request))
            await writer.drain()
            return True
        try:
            return await self._trapped(trap, request, writer)
        finally:
            trap.over.set()

    async def _trapped(self, trap: Trap, request: Request, writer: asyncio.StreamWriter) -> bool:
        if trap.before:
            trap.before()
        trap.caught.set()
        if trap.loses_request:
            return False
        await asyncio.sleep(trap.delay_s)
        answer = trap.answer or await self._forward(request)
        if trap.after:
            trap.after()
        if trap.loses_answer:
            return False
        writer.write(answer)
        await writer.drain()
        return True

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request:
        head = await reader.readuntil(b"\r\n\r\n")
        first, headers = _parsed(head)
        if headers.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            lines = head.split(b"\r\n")
            head = b"\r\n".join(line for line in lines if not line.lower().startswith(b"expect:"))
        method, target, _ = first.split(" ", 2)
        ports = writer.get_extra_info("peername")[1], writer.get_extra_info("sockname")[1]
        request = Request(self._node, self._service, method, target, headers, b"", head, ports)
        # The names of requests to the registry are in their bodies.
        if self._service != "registry" and (trap := self._proxy.held(request)):
            self._held = trap
            await _hold(trap, writer.transport)
        return replace(request, body=await _body(reader, headers)) if _has_body(headers) else request

    async def _forward(self, request: Request) -> bytes:
        """Returns the server's answer unchanged."""
        if self._behind and self._behind[0].at_eof():
            self._behind[1].close()
            self._behind = None
        if self._behind is None:
            self._behind = await asyncio.open_connection(*self._server, limit=_HEAD_BYTES_MAX)
        reader, writer = self._behind
        writer.write(request.head + request.body)
        await writer.drain()
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            first, headers = _parsed(head)
            status = int(first.split(" ")[1])
            if status >= 200:
                break
        if request.method == "HEAD" or status in (204, 304):
            return head
        body = await _body(reader, headers) if _has_body(headers) else await reader.read()
        if request.name == BLOCK_READ and status in (200, 206):
            self._proxy.block_bytes += len(body)
        return head + body


async def _hold(trap: Trap, connection: asyncio.WriteTransport) -> None:
    """Reads nothing from a connection until the trap says so."""
    if not (trap.reads_on and isinstance(connection, asyncio.Transport)):
        return
    connection.pause_reading()
    trap.caught.set()
    while not trap.reads_on.is_set():
        await asyncio.sleep(_LOOK_S)
    connection.resume_reading()


def _parsed(head: bytes) -> tuple[str, dict[str, str]]:
    """Returns the first line, and the headers in lower case."""
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.split(":", 1) for line in lines if ":" in line)
    return first, {name.strip().lower(): value.strip() for name, value in pairs}


def _has_body(headers: dict[str, str]) -> bool:
    return "content-length" in headers or "transfer-encoding" in headers


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    """Returns the body as it goes over the wire, chunks and all."""
    if "chunked" not in headers.get("transfer-encoding", ""):
        return await reader.readexactly(int(headers.get("content-length", "0")))
    wire = bytearray()
    while True:
        line = await reader.readuntil(b"\r\n")
        wire += line
        size = int(line.split(b";")[0], 16)
        if size == 0:
            break
        wire += await reader.readexactly(size + 2)
    while line != b"\r\n":
        line = await reader.readuntil(b"\r\n")
        wire += line
    return bytes(wire)
