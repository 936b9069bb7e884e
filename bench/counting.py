"""A TCP relay in front of a lake that counts what the lake sends: no server's own account is needed."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from urllib.parse import urlsplit

_PIECE = 1 << 18


class CountingRelay:
    """Relays connections to `upstream` while its block runs."""

    def __init__(self, upstream: str) -> None:
        parts = urlsplit(upstream)
        self._upstream = (parts.hostname, parts.port)
        self._lock = threading.Lock()
        self._received = 0
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> CountingRelay:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        # `shutdown` wakes the thread that waits in `accept`; `close` alone would not.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def take(self) -> int:
        """Bytes the lake has sent, heads included, since the last call."""
        with self._lock:
            received, self._received = self._received, 0
        return received

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            lake = socket.create_connection(self._upstream)
            for connection in (client, lake):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._relay, args=(client, lake, False), daemon=True).start()
            threading.Thread(target=self._relay, args=(lake, client, True), daemon=True).start()

    def _relay(self, source: socket.socket, sink: socket.socket, counted: bool) -> None:
        buffer = bytearray(_PIECE)
        view = memoryview(buffer)
        try:
            while got := source.recv_into(buffer):
                if counted:
                    with self._lock:
                        self._received += got
                sink.sendall(view[:got])
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            # One side is gone; tell the other.
            for connection in (source, sink):
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
