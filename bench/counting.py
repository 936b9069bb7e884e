"""A TCP relay in front of a lake that counts the bytes of the lake, so that no server has to count them itself.

It never touches the bytes: the kernel moves them from one socket to the other. It runs in a process of its own, as
everything but the client does.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import threading
from contextlib import suppress
from urllib.parse import urlsplit

_PIECE = 1 << 18
_FORK = multiprocessing.get_context("fork")


class CountingRelay:
    """Relays connections to `upstream` while its block runs."""

    def __init__(self, upstream: str) -> None:
        parts = urlsplit(upstream)
        self._upstream = (parts.hostname, parts.port)
        self._received = _FORK.Value("Q", 0)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self._process = _FORK.Process(target=self._accept, daemon=True)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> CountingRelay:
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()
        self._listener.close()

    def take(self) -> int:
        """Returns the bytes that the lake has sent since the last call, with heads."""
        with self._received.get_lock():
            received, self._received.value = self._received.value, 0
        return int(received)

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            lake = socket.create_connection(self._upstream)
            for connection in (client, lake):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._relay, args=(client, lake, False), daemon=True).start()
            threading.Thread(target=self._relay, args=(lake, client, True), daemon=True).start()

    def _relay(self, source: socket.socket, sink: socket.socket, counted: bool) -> None:
        output, entry = os.pipe()
        try:
            while got := os.splice(source.fileno(), entry, _PIECE):
                if counted:
                    with self._received.get_lock():
                        self._received.value += got
                while got:
                    got -= os.splice(output, sink.fileno(), got)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            # One side is gone; tell the other.
            for connection in (source, sink):
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        finally:
            os.close(output)
            os.close(entry)
