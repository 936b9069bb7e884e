"""One signed HTTP request and its whole answer, of which a client library would hide parts from a comparison."""

from __future__ import annotations

import http.client
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from .lakes import Account
from .signing import UNSIGNED_PAYLOAD, encode_path, encode_query, signed_headers

# Different in every answer of one and the same server, or ours by design.
VOLATILE_HEADERS = frozenset(
    (
        "connection",
        "date",
        "keep-alive",
        "server",
        "server-timing",
        "x-amz-id-2",
        "x-amz-request-id",
        "x-cache",
        "x-cache-reason",
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
    )
)
VOLATILE_ELEMENTS = re.compile(rb"<(RequestId|HostId)>[^<]*</\1>")


@dataclass(frozen=True)
class Answer:
    """Status, headers in lower case, body."""

    status: int
    headers: dict[str, str]
    body: bytes

    def stable(self) -> tuple[int, dict[str, str], bytes]:
        """Returns the answer without the parts that may differ between two equal answers."""
        headers = {name: value for name, value in self.headers.items() if name not in VOLATILE_HEADERS}
        body = self.body
        if self.status >= 400:
            body = VOLATILE_ELEMENTS.sub(b"", body)
            # An error page carries a request id, whose length is the server's affair.
            headers.pop("content-length", None)
        return self.status, headers, body


def send(
    url: str,
    account: Account | None,
    method: str,
    bucket: str,
    key: str = "",
    *,
    query: dict[str, str] | None = None,
    headers: dict[str, str] | None = None,
    body: bytes = b"",
    payload: str = UNSIGNED_PAYLOAD,
    timeout_s: float = 20,
) -> Answer:
    """Sends one request on a connection of its own; anonymous without an account."""
    parts = urlsplit(url)
    if parts.hostname is None:
        raise ValueError(f"{url} names no host")
    path, query_text = encode_path(bucket, key), encode_query(query or {})
    host = parts.netloc
    sent = {**(headers or {}), "Host": host}
    if account is not None:
        sent = signed_headers(account, method, host, path, query_text, headers, payload)
    if body or method in ("PUT", "POST"):
        sent["Content-Length"] = str(len(body))
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout_s)
    try:
        connection.putrequest(
            method, path + (f"?{query_text}" if query_text else ""), skip_host=True, skip_accept_encoding=True
        )
        for name, value in sent.items():
            connection.putheader(name, value)
        connection.endheaders(body or None)
        answer = connection.getresponse()
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
    finally:
        connection.close()
