"""A TCP relay that keeps bytes for a while, as a long way would: `netem` is not in every kernel.

Both directions are late by half of a round trip, and the first bytes of a connection by one round trip more, which
a real one would need to open. With a rate, all connections together carry no more in each direction. Nothing else
of a long way is imitated: windows open at once, as on loopback, so a long way costs a large object less here than
it would. It runs in a process of its own.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
from collections import deque
from contextlib import suppress
from urllib.parse import urlsplit

_PIECE = 1 << 16
# A sleep ends late by about a millisecond. A relay that wakes up this much before its way is free loses no time.
_EARLY_S = 0.005
_FORK = multiprocessing.get_context("fork")


class DelayRelay:
    """Relays connections to `upstream` while its block runs, at any free port or at this one."""

    def __init__(self, upstream: str, round_trip_s: float, bytes_per_s: float = 0, port: int = 0) -> None:
        parts = urlsplit(upstream)
        self._upstream = (parts.hostname, parts.port)
        self._one_way_s = round_trip_s / 2
        self._s_per_byte = 1 / bytes_per_s if bytes_per_s else 0.0
        # When each direction has sent all that it was given.
        self._free = {True: 0.0, False: 0.0}
        self._listener = socket.create_server(("127.0.0.1", port), backlog=512)
        self._process = _FORK.Process(target=lambda: asyncio.run(self._serve()), daemon=True)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> DelayRelay:
        self._process.start()
        self._listener.close()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self._process.kill()
        self._process.join()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._relay, sock=self._listener, limit=4 * _PIECE)
        await server.serve_forever()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = self._upstream
        with suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection(host, port)
            for end in (writer, far_writer):
                end.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            opening_s = 2 * self._one_way_s
            await asyncio.gather(
                self._pass(reader, far_writer, opening_s, is_out=True),
                self._pass(far_reader, writer, 0, is_out=False),
                return_exceptions=True,
            )

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, opening_s: float, *, is_out: bool
    ) -> None:
        """Pieces leave in their order, each at its time; `None` is the end."""
        clock = asyncio.get_running_loop().time
        pieces: deque[tuple[float, bytes]] = deque()
        arrived = asyncio.Event()

        async def receive() -> None:
            at_least = clock() + opening_s + self._one_way_s
            while True:
                try:
                    piece = await reader.read(_PIECE)
                except OSError:
                    piece = b""
                sent = max(clock(), self._free[is_out]) + len(piece) * self._s_per_byte
                self._free[is_out] = sent
                pieces.append((max(at_least, sent + self._one_way_s), piece))
                arrived.set()
                # No more waits here than the way holds: the sender waits as well.
                await asyncio.sleep(sent - clock() - _EARLY_S)
                if not piece:
                    return

        receiving = asyncio.create_task(receive())
        try:
            while True:
                while not pieces:
                    arrived.clear()
                    await arrived.wait()
                due, piece = pieces.popleft()
                await asyncio.sleep(due - clock())
                if not piece:
                    break
                writer.write(piece)
                await writer.drain()
        except OSError:
            pass
        finally:
            receiving.cancel()
            writer.close()
