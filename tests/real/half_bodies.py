"""Uploads that end on their way leave nothing at the lake, whether the client or the node breaks off."""

from __future__ import annotations

import http.client
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from .lakes import Lake
from .node import Node
from .report import Difference, Report
from .signing import UNSIGNED_PAYLOAD, encode_path, signed_headers
from .wire import send

_BUCKET = "half"
# Half of a body is more than all buffers on its way hold, so a part of it is at the lake.
_BODY_BYTES = 64 << 20
# A lake that took the half for a whole body would have stored it by then.
_STORED_WITHIN_S = 3.0


def prove(report: Report, lake: Lake, binary: Path, folder: Path) -> None:
    """Breaks uploads off at a node of its own."""
    send(lake.url, lake.account, "PUT", _BUCKET)
    with Node(binary, folder / f"{lake.name}-half", lake.url, [lake.account]) as node:
        with report.check(lake.name, "half a body", "of a client that breaks off"):
            _breaks_off(lake, node, "client", lambda: None)
        with report.check(lake.name, "half a body", "of a node that is killed"):
            _breaks_off(lake, node, "node", lambda: os.kill(node.pid, signal.SIGKILL))


def _breaks_off(lake: Lake, node: Node, key: str, end: Callable[[], None]) -> None:
    at = urlsplit(node.url)
    path = encode_path(_BUCKET, key)
    headers = signed_headers(lake.account, "PUT", at.netloc, path, "", {}, UNSIGNED_PAYLOAD)
    connection = http.client.HTTPConnection(at.hostname or "", at.port, timeout=60)
    try:
        connection.putrequest("PUT", path, skip_host=True, skip_accept_encoding=True)
        for name, value in {**headers, "Content-Length": str(_BODY_BYTES)}.items():
            connection.putheader(name, value)
        connection.endheaders(bytes(_BODY_BYTES // 2))
        end()
    finally:
        connection.close()
    until = time.monotonic() + _STORED_WITHIN_S
    while time.monotonic() < until:
        answer = send(lake.url, lake.account, "HEAD", _BUCKET, key)
        if answer.status != 404:
            raise Difference(f"the lake has {answer.headers.get('content-length')} bytes: {answer.status}")
        time.sleep(0.1)
