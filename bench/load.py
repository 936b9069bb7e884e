"""The client of all throughput figures: wrk with one thread, sending requests signed beforehand."""

from __future__ import annotations

import json
import resource
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from real.lakes import Account
from real.processes import run
from real.signing import encode_path, presigned_query, signed_headers

SCRIPT = Path(__file__).with_name("load.lua")


class Request(Protocol):
    """A request that can be prepared once and sent many times."""

    def wire(self, host: str, account: Account) -> str:
        """Returns the bytes of the request, which are valid for fifteen minutes."""


@dataclass(frozen=True)
class Get:
    """One GET; `range` as in the header, or empty for the whole object."""

    bucket: str
    key: str
    range: str = ""
    presigned: bool = False

    def wire(self, host: str, account: Account) -> str:
        """Returns the bytes of the request, which are valid for fifteen minutes."""
        path = encode_path(self.bucket, self.key)
        if self.presigned:
            return head_of("GET", f"{path}?{presigned_query(account, 'GET', host, path)}", {"Host": host})
        headers = signed_headers(account, "GET", host, path)
        if self.range:
            headers["Range"] = self.range
        return head_of("GET", path, headers)


@dataclass(frozen=True)
class Put:
    """One PUT of text without a NUL."""

    bucket: str
    key: str
    body: str
    headers: dict[str, str] = field(default_factory=dict)

    def wire(self, host: str, account: Account) -> str:
        """Returns the bytes of the request, which are valid for fifteen minutes."""
        path = encode_path(self.bucket, self.key)
        headers = signed_headers(account, "PUT", host, path, headers=self.headers)
        headers["Content-Length"] = str(len(self.body))
        return head_of("PUT", path, headers) + self.body


def head_of(method: str, target: str, headers: dict[str, str]) -> str:
    """Returns the head of a request."""
    lines = (f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{method} {target} HTTP/1.1\r\n" + "".join(lines) + "\r\n"


@dataclass(frozen=True)
class Load:
    """The measurements of wrk."""

    seconds: float
    requests: int
    bytes: int
    p50_us: float
    p99_us: float
    bad_statuses: int
    broken: int
    client_cpu_seconds: float = 0


def generate(
    url: str,
    account: Account,
    requests: Sequence[Request],
    scratch: Path,
    *,
    connections: int,
    seconds: float,
    once: bool = False,
    pause_ms: int = 0,
    within: Sequence[str] = (),
) -> Load:
    """Sends `requests` in turn for `seconds`, or each `once`; keep-alive, one request at a time a connection.

    With `pause_ms` each connection rests so long before each request. `within` stands in front of the client's
    command, such as the namespace that it runs in.
    """
    host = urlsplit(url).netloc
    scratch.write_text("\0".join(request.wire(host, account) for request in requests))
    environment = {"REQUESTS": str(scratch), **({"ONCE": "1"} if once else {})}
    if pause_ms:
        environment["PAUSE_MS"] = str(pause_ms)
    before = children_cpu_seconds()
    printed = run(
        [
            *(*within, "wrk", "--threads", "1", "--connections", str(connections), "--timeout", "30s"),
            *("--duration", f"{max(1, round(seconds))}s", "--script", SCRIPT, url),
        ],
        env=environment,
        timeout_s=seconds + 120,
    )
    load = Load(**json.loads(printed.strip().splitlines()[-1]))
    return replace(load, client_cpu_seconds=children_cpu_seconds() - before)


def children_cpu_seconds() -> float:
    """CPU time of the children that ended; nothing else of ours ends while wrk runs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
