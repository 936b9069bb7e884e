"""Many connections that send the given bytes, read nothing, and stay open."""

from __future__ import annotations

import selectors
import socket
import ssl
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from . import http2

# When no connection has taken a byte for so long, the node takes no more.
_QUIET_S = 1.5
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)


@dataclass
class _Client:
    socket: socket.socket
    parts: list[memoryview]

    def send(self) -> int:
        """Sends as many bytes as the kernel takes, and returns their number."""
        taken = 0
        while self.parts:
            # TLS makes a record of each call. If it cannot send it, the next call must pass the same bytes.
            count = self.socket.send(self.parts[0][: 64 << 10])
            taken += count
            self.parts[0] = self.parts[0][count:]
            if not self.parts[0]:
                self.parts.pop(0)
        return taken


class Crowd:
    """A number of clients of one port."""

    def __init__(self, port: int, connections: int, protocols: Sequence[str] = ()) -> None:
        self._address, self._connections = ("127.0.0.1", port), connections
        # One for all: each reads the certificates of the system.
        self._tls = http2.tls(*protocols) if protocols else None
        self._clients: list[_Client] = []

    def pour(self, head: Callable[[int], bytes], rest: bytes = b"", most_s: float = 40) -> None:
        """Lets each client send its head, then `rest`, as far as the node takes them."""
        shared = memoryview(rest)
        with selectors.DefaultSelector() as selector:
            until = time.monotonic() + most_s
            for number in range(self._connections):
                with suppress(OSError):
                    # A client's bytes are made only once its connection is open: those of a thousand may be
                    # large.
                    client = _Client(self._connect(), [part for part in (memoryview(head(number)), shared) if part])
                    self._clients.append(client)
                    _step(client, selector)
            last = time.monotonic()
            while selector.get_map() and time.monotonic() < min(until, last + _QUIET_S):
                for key, _ in selector.select(0.1):
                    if _step(key.data, selector):
                        last = time.monotonic()

    def close(self) -> None:
        """Closes all connections without the minute in which the kernel remembers them."""
        for client in self._clients:
            with suppress(OSError):
                client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
            client.socket.close()

    def _connect(self) -> socket.socket:
        plain = socket.create_connection(self._address, timeout=10)
        # The kernel's buffer for a client that does not read is not the node's memory, so it is kept small.
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connected = self._tls.wrap_socket(plain) if self._tls else plain
        connected.setblocking(False)
        return connected


def _step(client: _Client, selector: selectors.BaseSelector) -> int:
    """Sends more, and waits for the socket where there is more to send; the number of bytes."""
    taken = 0
    waits = False
    try:
        taken = client.send()
    except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
        waits = True
    except OSError:
        # The node has ended it.
        client.parts.clear()
    known = client.socket in selector.get_map()
    if waits and not known:
        selector.register(client.socket, selectors.EVENT_WRITE, client)
    elif known and not waits:
        selector.unregister(client.socket)
    return taken
