"""A balancer of connections: each goes to the next node, as behind a name with several addresses."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Sequence

from .processes import free_port

_CHUNK = 256 * 1024


class Balancer:
    """Listens on loopback and gives each connection to the next of these ports. It runs from `with` to its end."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._turns = itertools.cycle(ports)
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", free_port()), backlog=256)

    @property
    def url(self) -> str:
        """Returns the URL at which clients speak S3 to the nodes."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Balancer:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        # A thread that waits in `accept` is woken by the first, and not by the second.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with self._lock:
            port = next(self._turns)
        try:
            node = socket.create_connection(("127.0.0.1", port))
        except OSError:
            client.close()
            return
        for end in (client, node):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        back = threading.Thread(target=_pass_on, args=(node, client), daemon=True)
        back.start()
        _pass_on(client, node)
        back.join()
        client.close()
        node.close()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    """Passes bytes on to the end of the source, and tells the target of the end."""
    try:
        while chunk := source.recv(_CHUNK):
            target.sendall(chunk)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        # One side has gone: the other must not wait for it.
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
