"""A reverse proxy in front of an STS, which counts what it is asked for."""

from __future__ import annotations

import http.client
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


class Counter:
    """The proxy; it passes requests on with the host that they name, because that is signed."""

    def __init__(self, url: str) -> None:
        self.requests = 0
        """The most requests at a time, since `forget`."""
        self.most = 0
        """Where it sends its clients instead of answering."""
        self.elsewhere: str | None = None
        """How long it waits before it answers."""
        self.pause_s = 0.0
        """Whether it ends each connection in place of an answer."""
        self.is_down = False
        self._there, self._under_way, self._lock = urlsplit(url).netloc, 0, threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _pages(self))
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Returns the URL at which it listens."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def forget(self) -> None:
        """Counts from 0 on."""
        with self._lock:
            self.requests, self.most = 0, 0

    def answer(self, path: str, form: bytes, headers: dict[str, str]) -> tuple[int, list[tuple[str, str]], bytes]:
        """Returns the answer to one request."""
        with self._lock:
            self.requests += 1
            self._under_way += 1
            self.most = max(self.most, self._under_way)
        connection = http.client.HTTPConnection(self._there, timeout=60)
        try:
            if self.elsewhere is not None:
                return 307, [("Location", self.elsewhere)], b""
            time.sleep(self.pause_s)
            connection.request("POST", path, form, headers)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()
            with self._lock:
                self._under_way -= 1

    def __enter__(self) -> Counter:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def handle_error(self, request: object, client_address: object) -> None:
        """Keeps quiet about clients that hang up."""


_OF_CONNECTIONS = ("connection", "content-length", "keep-alive", "transfer-encoding")


def _pages(counter: Counter) -> type[BaseHTTPRequestHandler]:
    class Pages(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers["content-length"]))
            if counter.is_down:
                self.close_connection = True
                return
            status, headers, body = counter.answer(self.path, form, dict(self.headers))
            self.send_response_only(status)
            for name, value in headers:
                if name.lower() not in _OF_CONNECTIONS:
                    self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    return Pages
