"""The client of all throughput figures: wrk with one thread, sending requests signed beforehand."""

from __future__ import annotations

import json
import resource
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from real.lakes import Account
from real.processes import run
from real.signing import encode_path, signed_headers

SCRIPT = Path(__file__).with_name("load.lua")


@dataclass(frozen=True)
class Get:
    """One GET; `range` as in the header, or empty for the whole object."""

    bucket: str
    key: str
    range: str = ""

    def wire(self, host: str, account: Account) -> str:
        """The request as it is sent, good for fifteen minutes."""
        path = encode_path(self.bucket, self.key)
        headers = signed_headers(account, "GET", host, path)
        if self.range:
            headers["Range"] = self.range
        return f"GET {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n"


@dataclass(frozen=True)
class Load:
    """What wrk measured."""

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
    gets: Sequence[Get],
    scratch: Path,
    *,
    connections: int,
    seconds: float,
    once: bool = False,
    within: Sequence[str] = (),
) -> Load:
    """Sends `gets` in turn for `seconds`, or each `once`; keep-alive, one request at a time a connection.

    `within` stands in front of the client's command, such as the namespace that it runs in.
    """
    host = urlsplit(url).netloc
    scratch.write_text("\0".join(get.wire(host, account) for get in gets))
    environment = {"REQUESTS": str(scratch), **({"ONCE": "1"} if once else {})}
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
