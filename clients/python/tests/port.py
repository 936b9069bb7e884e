"""An admin port that answers as a test tells it, and remembers what it was asked."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True)
class Request:
    """A request as the port has read it."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Reply:
    """An answer. `cut` bytes are missing at its end; without `status` the connection ends before an answer."""

    status: int | None = 200
    body: bytes = b""
    cut: int = 0

    @classmethod
    def of_json(cls, value: object, status: int = 200) -> Reply:
        """Returns an answer with a value."""
        return cls(status, json.dumps(value).encode())


def always(reply: Reply) -> Callable[[Request], Reply]:
    """Returns what answers the same to every request."""
    return lambda _: reply


@dataclass
class Port:
    """The port: `answer` decides each answer."""

    url: str
    answer: Callable[[Request], Reply]
    requests: list[Request] = field(default_factory=list)


@contextmanager
def open_port(answer: Callable[[Request], Reply], tls: ssl.SSLContext | None = None) -> Iterator[Port]:
    """Opens a port on loopback until the end of the block."""
    scheme = "http" if tls is None else "https"
    port = Port("", answer)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Request(self.command, parts.path, dict(parse_qsl(parts.query)), headers, body)
            port.requests.append(request)
            reply = port.answer(request)
            self.close_connection = True
            if reply.status is None:
                return
            self.send_response(reply.status)
            self.send_header("content-length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body[: len(reply.body) - reply.cut])

        do_POST = do_DELETE = do_GET  # noqa: N815 - the library calls them

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            """A client that goes away is what some tests are about."""

    server = Server(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    port.url = f"{scheme}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


TASK_ID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


def task(**fields: Any) -> dict[str, Any]:
    """Returns a task as nodes send it."""
    objects = {"total": 4, "done": 1, "unchanged": 0, "skipped": 0, "failed": 0}
    sizes = dict.fromkeys(("cached", "from_lake", "from_peers", "pinned", "removed"), 0)
    return {
        "id": TASK_ID,
        "kind": "prefetch",
        "uri": "s3://b/p/",
        "created": "2026-11-27T18:00:00.000Z",
        "accepted_by": "node-0",
        "forgotten": "2026-12-05T18:00:00.000Z",
        "state": "running",
        "objects": objects,
        "bytes": {"total": 4 << 20, "done": 1 << 20, **sizes},
        "errors": [],
        "nodes": {},
        "at_risk": False,
        **fields,
    }


def plan(jobs: dict[str, int] | None = None, progress: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """Returns a plan as nodes send it: a task, with these counts of jobs and this progress of a plan."""
    counts = {"waiting": 2, "running": 0, "at_risk": 1, "met": 0, "missed": 0, "unread": 0, "unplanned": 0}
    named: dict[str, Any] = {"troubled": [], "transfers": [], "issues": [], "arrivals": [], "replans": 0}
    document = {
        "bytes": 100,
        "starts": "2026-11-27T18:00:00.000Z",
        "ends": "2026-11-27T19:00:00.000Z",
        "jobs": 3,
        "planned_jobs": 3,
        "transfers": 4,
    }
    return {
        **{name: value for name, value in task().items() if name != "uri"},
        "kind": "plan",
        "document": document,
        "plan": {"planned_bytes": 2 << 20, "jobs": jobs or counts, **named, **(progress or {})},
        **fields,
    }


def flush(**fields: Any) -> dict[str, Any]:
    """Returns a flush as nodes send it."""
    counts = {"order": 3, "left": 0, "flushed": 2, "failed": 0}
    return {**counts, "running": False, "below": None, "error": None, **fields}


def handoff(**fields: Any) -> dict[str, Any]:
    """Returns the draining of a node as it tells it."""
    counts = dict.fromkeys(("objects_dirty", "blocks_left", "blocks_given", "bytes_given", "blocks_kept"), 0)
    return {"state": "draining", **counts, **fields}


def status(**fields: Any) -> dict[str, Any]:
    """Returns the part of a node's status that clients may rely on, as a node tells it."""
    tasks = ("queued", "running", "done", "failed", "cancelled", "at_risk", "running_here", "records", "record_bytes")
    return {
        "node": {"name": "node-0", "topology": "dc1", "version": "0"},
        "conditions": [],
        "store": {
            "capacity_bytes": 1,
            "resident_bytes": 0,
            "blocks": 0,
            "pins": {"objects": 0, "bytes": 0, "bytes_max": 1},
        },
        "tasks": dict.fromkeys(tasks, 0),
        "write_back": {"objects": 0, "bytes": 0, "flush": flush()},
        "drain": handoff(),
        **fields,
    }
