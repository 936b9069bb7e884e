"""A wire with a delay: it passes TCP connections on, each byte half a delay late, and datagrams at once.

`python -m net.delay LISTEN TARGET MILLISECONDS`, with addresses as `host:port`. A request and its answer together take
the whole delay longer. It stands in for a kernel without `netem`.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import cast

_PIECE = 1 << 16
# What is on the wire at a time, each way: more than a connection needs at the speeds of these tests.
_PIECES_MAX = 256


def main() -> int:
    """Passes on until it is ended."""
    listen, target, milliseconds = sys.argv[1:]
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(_address(listen), _address(target), float(milliseconds) / 2e3))
    return 0


def _address(written: str) -> tuple[str, int]:
    host, port = written.rsplit(":", 1)
    return host, int(port)


async def _serve(listen: tuple[str, int], target: tuple[str, int], delay_s: float) -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*target, limit=_PIECE)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_pass(reader, far_writer, delay_s), _pass(far_reader, writer, delay_s))

    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(lambda: _Datagrams(target), local_addr=listen)
    server = await asyncio.start_server(accept, *listen, limit=_PIECE)
    async with server:
        await server.serve_forever()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    """Passes on one way of a connection until it ends."""
    loop = asyncio.get_running_loop()
    wire: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_PIECES_MAX)

    async def take() -> None:
        piece = b"."
        while piece:
            try:
                piece = await reader.read(_PIECE)
            except OSError:
                piece = b""
            await wire.put((loop.time() + delay_s, piece))

    async def give() -> None:
        while True:
            at, piece = await wire.get()
            await asyncio.sleep(at - loop.time())
            if not piece:
                break
            with contextlib.suppress(OSError):
                writer.write(piece)
                await writer.drain()
        writer.close()

    await asyncio.gather(take(), give())


class _Datagrams(asyncio.DatagramProtocol):
    """Sends every datagram on. Answers go to the address that a datagram names, not to the one that it comes from."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if self._transport is not None:
            self._transport.sendto(data, self._target)


if __name__ == "__main__":
    sys.exit(main())
