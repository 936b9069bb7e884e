"""Requests of a node by their purpose, so that a fault can be ordered for one of them."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from urllib.parse import parse_qs, urlsplit

BLOCK_READ = "block read at lake"
# The keeper of a map surveys the lake.
PACKS_LISTED = "packs listed"
# Packs and tables are in it, below the prefix of their rule.
FOLDER = ".shoal-pack/"
# These requests change nothing but a session: a fault at one of them is a fault between two others.
IDLE = frozenset(
    (
        *("read at lake", BLOCK_READ, PACKS_LISTED, "piece read", "pieces listed"),
        *("registry read", "session opened", "session kept", "session closed"),
    )
)
# Names of transactions by the first letters of the keys that they put and remove (`keys.rs` of the registry).
# The first rule that fits names the transaction.
_TRANSACTIONS = (
    ("n", "", "session begun"),
    ("a", "", "adoption begun"),
    ("", "m", "member released"),
    ("", "a", "adoption ended"),
    ("du", "", "completion written"),
    ("db", "", "change begun"),
    ("d", "b", "change ended"),
    ("dt", "", "entry replaced"),
    ("d", "", "entry written"),
    ("", "db", "change ended"),
    ("", "d", "empty entry removed"),
    ("Gg", "", "table committed"),
    ("G", "", "table reserved"),
    ("k", "", "keeper named"),
    ("uo", "", "upload begun"),
    ("p", "", "part written"),
    ("u", "", "upload ended"),
    ("", "u", "upload removed"),
    ("", "p", "parts forgotten"),
    ("", "t", "trash forgotten"),
)
_SESSIONS = {"grant": "session opened", "keepalive": "session kept", "revoke": "session closed"}


@dataclass(frozen=True)
class Request:
    """A request as it came through a door of the proxy. The node of a door that several nodes use is 0."""

    node: int
    """`lake`, `tier` or `registry`."""
    service: str
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    head: bytes = field(repr=False, default=b"")
    """The ports of the sender and of the door."""
    ports: tuple[int, int] = (0, 0)

    @cached_property
    def name(self) -> str:
        """Returns the name of the request's purpose."""
        if self.service == "registry":
            return _name_at_registry(self.target, self.body)
        query = parse_qs(urlsplit(self.target).query, keep_blank_values=True)
        if self.service == "lake":
            is_object = "/" in urlsplit(self.target).path.strip("/")
            if self.method == "GET" and is_object and not query:
                return BLOCK_READ
            if query.get("prefix", [""])[0].endswith(FOLDER):
                return PACKS_LISTED
            if of_pack := _name_of_pack(self.method, self.target):
                return of_pack
            return _name_at_lake(self.method, query, "x-amz-copy-source" in self.headers)
        return _name_at_tier(self.method, query, "x-amz-copy-source" in self.headers)

    def registry_keys(self, operation: str) -> list[bytes]:
        """Returns the keys without prefix that a transaction puts (`requestPut`) or removes (`requestDeleteRange`)."""
        return _keys(self.body, operation) if self.target.endswith("/kv/txn") else []


def _name_of_pack(method: str, target: str) -> str:
    """Returns the name of a request that changes a pack or a table; empty for others."""
    if FOLDER not in target or method not in ("PUT", "DELETE"):
        return ""
    what = "table" if f"{FOLDER}map/" in target else "pack"
    return f"{what} put" if method == "PUT" else f"{what} removed"


def _name_at_lake(method: str, query: Mapping[str, Sequence[str]], is_copy: bool) -> str:
    if method in ("GET", "HEAD"):
        return "read at lake"
    if "uploads" in query:
        return "upload begun at lake"
    if "uploadId" in query:
        ends = {"POST": "upload completed at lake", "DELETE": "upload aborted at lake"}
        return ends.get(method, "part put at lake")
    if "delete" in query:
        return "objects deleted at lake"
    if method == "DELETE":
        return "object deleted at lake"
    return "object copied at lake" if is_copy else "object put at lake"


def _name_at_tier(method: str, query: Mapping[str, Sequence[str]], is_copy: bool) -> str:
    if method in ("GET", "HEAD"):
        return "pieces listed" if "list-type" in query else "piece read"
    if method == "PUT":
        return "piece copied" if is_copy else "piece put"
    return "piece removed"


def _name_at_registry(target: str, body: bytes) -> str:
    last = target.rsplit("/", 1)[-1]
    if last != "txn":
        return _SESSIONS.get(last, "registry read")
    puts, removals = (
        {key[:1].decode(errors="replace") for key in _keys(body, operation)}
        for operation in ("requestPut", "requestDeleteRange")
    )
    for put, removed, name in _TRANSACTIONS:
        if puts >= set(put) and removals >= set(removed):
            return name
    return "list shortened"


def _keys(body: bytes, operation: str) -> list[bytes]:
    document = json.loads(body)
    found = []
    for each in document.get("success", []):
        # Both spellings are JSON for protobuf.
        inner = each.get(operation) or each.get(_snake(operation))
        if inner:
            # `shoal/`, the name of the tier, and a slash stand in front.
            found.append(base64.b64decode(inner["key"]).split(b"/", 2)[2])
    return found


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
