"""A TCP relay in front of a lake that counts requests and the bytes of the lake, so that no server has to count them.

It touches the heads of requests alone: the kernel moves everything else from one socket to the other. It runs in a
process of its own, as everything but the client does.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlsplit

_PIECE = 1 << 18
_METHODS = (b"GET", b"HEAD", b"PUT", b"POST", b"DELETE")
_FORK = multiprocessing.get_context("fork")


class CountingRelay:
    """Relays connections to `upstream` while its block runs; all together send it so many bytes a second at most."""

    def __init__(self, upstream: str, bytes_per_s: float = 0) -> None:
        parts = urlsplit(upstream)
        self._upstream = (parts.hostname, parts.port)
        self._s_per_byte = 1 / bytes_per_s if bytes_per_s else 0.0
        # When all bytes so far may have been sent.
        self._free_s, self._turn = 0.0, threading.Lock()
        self._received = _FORK.Value("Q", 0)
        self._requests = _FORK.Array("Q", len(_METHODS))
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

    def take_requests(self) -> Counter[str]:
        """Returns the number of requests of each method since the last call."""
        with self._requests.get_lock():
            counts, self._requests[:] = self._requests[:], [0] * len(_METHODS)
        return Counter({method.decode(): count for method, count in zip(_METHODS, counts, strict=True) if count})

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            lake = socket.create_connection(self._upstream)
            for connection in (client, lake):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for relay, ends in ((self._relay_requests, (client, lake)), (self._relay_answers, (lake, client))):
                threading.Thread(target=_until_closed, args=(relay, *ends), daemon=True).start()

    def _relay_answers(self, lake: socket.socket, client: socket.socket, pipe: _Pipe) -> None:
        while got := pipe.move(lake, client, _PIECE):
            with self._received.get_lock():
                self._received.value += got

    def _relay_requests(self, client: socket.socket, lake: socket.socket, pipe: _Pipe) -> None:
        have = b""
        while True:
            while b"\r\n\r\n" not in have:
                piece = client.recv(_PIECE)
                if not piece:
                    return
                have += piece
            head = have[: have.index(b"\r\n\r\n") + 4]
            with self._requests.get_lock():
                self._requests[_METHODS.index(head.partition(b" ")[0])] += 1
            end = len(head) + _body_bytes(head)
            lake.sendall(have[:end])
            missing, have = end - len(have), have[end:]
            while missing > 0:
                got = pipe.move(client, lake, min(missing, _PIECE))
                if not got:
                    return
                missing -= got
                self._rest(got)

    def _rest(self, sent: int) -> None:
        with self._turn:
            self._free_s = max(self._free_s, time.monotonic()) + sent * self._s_per_byte
            wait_s = self._free_s - time.monotonic()
        time.sleep(max(0.0, wait_s))


class _Pipe:
    """The place in the kernel through which bytes move from socket to socket."""

    def __init__(self) -> None:
        self._output, self._entry = os.pipe()

    def close(self) -> None:
        os.close(self._output)
        os.close(self._entry)

    def move(self, source: socket.socket, sink: socket.socket, at_most: int) -> int:
        """Moves the bytes that come next; returns their number, which is 0 at the end."""
        got = left = os.splice(source.fileno(), self._entry, at_most)
        while left:
            left -= os.splice(self._output, sink.fileno(), left)
        return got


def _body_bytes(head: bytes) -> int:
    fields = (line.partition(b":") for line in head.lower().split(b"\r\n"))
    lengths = {name: value.strip() for name, _, value in fields}
    if b"transfer-encoding" in lengths:
        raise ValueError(f"the relay does not know where the body of this request ends: {head!r}")
    return int(lengths.get(b"content-length", 0))


def _until_closed(
    relay: Callable[[socket.socket, socket.socket, _Pipe], None], source: socket.socket, sink: socket.socket
) -> None:
    pipe = _Pipe()
    try:
        relay(source, sink, pipe)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        # One side is gone; tell the other.
        _shut_down(source, sink)
    except ValueError:
        _shut_down(source, sink)
        raise
    finally:
        pipe.close()


def _shut_down(*connections: socket.socket) -> None:
    for connection in connections:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
