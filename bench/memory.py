"""The memory that attackers make a node take, beside the bound that its limits set.

Each attack meets a node that has just started. Its clients open connections, send as much as the node
takes, read nothing and stay. The figure is the most anonymous memory of the node during the attack, less its
memory before. `bound` is the highest figure that the limits and the number of connections allow. `resident` is
the highest resident size, with the mapped blocks and all other memory that the kernel counts to the process.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from real.lakes import Account
from real.node import Node
from real.processes import run
from real.signing import encode_path, encode_query, signed_headers
from real.wire import send

from . import http2
from .crowd import Crowd
from .fairness import IDENTITY, LAKE, Lake
from .process_facts import MIB, MemoryWatch, memory_of

BUCKET = "memory"
ATTACKER = Account("attacker", "attacker-secret")
# Attackers whose requests in flight count each by themselves.
ATTACKERS = [ATTACKER, Account("second", "second-secret")]
HEAD_BYTES = 64 << 10
OBJECTS, OBJECT_BYTES = 16, 64 * MIB
# Keys of one list. The lake of `shoal dev` takes none that is much longer.
LISTED = 1000
# The memory that the code allows beside the limits: bodies held until they are judged, and wide connections.
BODIES_MIB, WIDE_MIB = 64, 128
# The most requests of a node to its lake at a time.
LAKE_REQUESTS = 512
# Connections that speak HTTP/2, each with its window of 1 MiB and the fields of 128 requests.
HTTP2_CONNECTIONS, HTTP2_MIB = 128, 3
# How long an attack goes on after the node has taken all that it takes.
AFTER_S = 1.5


@dataclass(frozen=True)
class Limits:
    """The limits of the configuration, and the bound that follows from them (ARCHITECTURE.md, Memory)."""

    name: str
    requests: int = 4096
    fill_mib: int = 256

    @property
    def connections(self) -> int:
        """Returns how many connections clients may have open."""
        return 2 * self.requests

    def bound_mib(self, connections: int, *, over_tls: bool, over_http2: bool) -> int:
        """Returns the most anonymous memory beyond the idle node's, for so many connections."""
        each_kib = (48 if over_tls else 32) * connections + 128 * LAKE_REQUESTS
        frames = HTTP2_CONNECTIONS * HTTP2_MIB if over_http2 else 0
        return self.fill_mib + BODIES_MIB + WIDE_MIB + (each_kib >> 10) + frames

    @property
    def table(self) -> str:
        """Returns the section of the configuration file."""
        return f'\n[limits]\nrequests = {self.requests}\nfill_bytes = "{self.fill_mib}MiB"\n'


@dataclass
class Target:
    """The node under attack, and how its clients reach it."""

    node: Node
    limits: Limits
    lake: Lake
    over_tls: bool
    connections: int
    crowds: list[Crowd] = field(default_factory=list)

    @property
    def authority(self) -> str:
        """Returns the value of `Host` in the clients' requests."""
        return f"127.0.0.1:{self.node.s3_port}"

    def crowd(self, connections: int, *protocols: str) -> Crowd:
        """Returns clients that stay until the attack is over."""
        crowd = Crowd(self.node.s3_port, min(connections, self.connections), protocols)
        self.crowds.append(crowd)
        return crowd

    def all_connections(self) -> Crowd:
        """Returns as many clients as the node lets in."""
        return self.crowd(self.connections, *(["http/1.1"] if self.over_tls else []))

    def head(
        self,
        method: str,
        key: str,
        account: Account | None,
        *,
        query: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
        payload: str = "UNSIGNED-PAYLOAD",
    ) -> bytes:
        """Returns a whole head, signed by `account` if there is one."""
        path, query_text = encode_path(BUCKET, key), encode_query(query or {})
        fields = {"Host": self.authority, **(headers or {})}
        if account is not None:
            fields = signed_headers(account, method, self.authority, path, query_text, headers, payload)
        target = f"{path}?{query_text}" if query_text else path
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        return f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode()


def filled(head: bytes, total: int = HEAD_BYTES) -> bytes:
    """Returns the head, filled with fields up to this length."""
    left = total - len(head)
    fields = []
    while left > 64:
        value = min(left - 16, 8000)
        fields.append(b"x-f%04d: %s\r\n" % (len(fields), b"v" * value))
        left -= len(fields[-1])
    return head[:-2] + b"".join(fields) + b"\r\n"


def unfinished_heads(target: Target) -> None:
    """Strangers send the longest head but its end."""
    target.all_connections().pour(lambda _: filled(target.head("GET", "k", None))[:-2])


def whole_heads(target: Target) -> None:
    """Strangers send one request with the longest head, and stay."""
    target.all_connections().pour(lambda _: filled(target.head("GET", "missing", None)))


def held_heads(target: Target) -> None:
    """Requests in flight with the longest heads, of strangers and two identities, with bodies that do not end."""

    def request(number: int) -> bytes:
        account = (None, *ATTACKERS)[number % 3]
        return filled(target.head("PUT", f"held-{number}", account, headers={"Content-Length": "1000000"})) + b"x"

    target.all_connections().pour(request)


def silence(target: Target) -> None:
    """Strangers connect (and finish the handshake of TLS), and say nothing."""
    target.all_connections().pour(lambda _: b"")


def half_handshakes(target: Target) -> None:
    """Strangers begin TLS and go no further."""
    hello = http2.client_hello()
    target.crowd(target.connections).pour(lambda _: hello)


def endless_chunks(target: Target) -> None:
    """An identity's signed chunks of 16 MiB, of which the last byte is missing."""
    size = 16 * MIB
    payload = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
    headers = {"x-amz-decoded-content-length": str(size), "Content-Length": str(size + 200)}
    start = b"%x;chunk-signature=%s\r\n" % (size, b"0" * 64)
    rest = bytes(size - 1)

    def request(number: int) -> bytes:
        return target.head("PUT", f"chunk-{number}", ATTACKER, headers=headers, payload=payload) + start

    target.all_connections().pour(request, rest)


def slow_readers(target: Target) -> None:
    """An identity asks for large objects that the node does not have, and reads nothing."""
    target.all_connections().pour(lambda number: target.head("GET", large(number), ATTACKER))


def slow_relays(target: Target) -> None:
    """An identity asks for large objects in a way that the node only relays, and reads nothing."""
    query = {"partNumber": "1"}
    target.all_connections().pour(lambda number: target.head("GET", large(number), ATTACKER, query=query))


def uploads(target: Target) -> None:
    """An identity uploads as much as the node takes while the lake stands still."""
    body = bytes(16 * MIB)
    headers = {"Content-Length": str(len(body))}
    with frozen(target.lake.pid):
        target.all_connections().pour(
            lambda number: target.head("PUT", f"upload-{number}", ATTACKER, headers=headers), body[:-1], most_s=20
        )


def slow_lists(target: Target) -> None:
    """An identity asks for the longest lists, and reads nothing."""
    query = {"list-type": "2", "prefix": "listed/"}
    target.all_connections().pour(lambda _: target.head("GET", "", ATTACKER, query=query))


def deletions(target: Target) -> None:
    """An identity's longest lists of keys to delete, of which the last byte is missing."""
    document = documents("Delete", b"<Object><Key>%s</Key></Object>" % (b"&#120;" * 300), 1000)
    headers = {"Content-Length": str(len(document)), "Content-MD5": "1B2M2Y8AsgTpgAmY7PhCfg=="}

    def request(_: int) -> bytes:
        return target.head("POST", "", ATTACKER, query={"delete": ""}, headers=headers)

    target.all_connections().pour(request, document[:-1])


def completions(target: Target) -> None:
    """An identity's longest lists of parts, of which the last byte is missing."""
    part = b'<Part><ETag>"%s"</ETag><PartNumber>1</PartNumber></Part>' % (b"0" * 32)
    document = documents("CompleteMultipartUpload", part, 10_000)
    headers = {"Content-Length": str(len(document))}

    def request(number: int) -> bytes:
        return target.head("POST", f"parted-{number}", ATTACKER, query={"uploadId": "none"}, headers=headers)

    target.all_connections().pour(request, document[:-1])


def documents(root: str, item: bytes, count: int) -> bytes:
    """Returns an XML document of many equal elements."""
    return b"<%s>%s</%s>" % (root.encode(), item * count, root.encode())


def full_windows(target: Target) -> None:
    """HTTP/2: an identity's uploads, sent as far as the windows of a connection go while the lake stands still."""
    streams, bytes_each = 8, 128 << 10

    def request(number: int) -> bytes:
        frames = [http2.preface()]
        for stream in range(streams):
            key, headers = f"window-{number}-{stream}", {"content-length": str(4 * MIB)}
            fields = http2.fields("PUT", BUCKET, key, target.authority, ATTACKER, headers)
            frames.append(http2.headers(2 * stream + 1, fields, ends_stream=False))
            frames.append(http2.data(2 * stream + 1, bytes_each - 1))
        return b"".join(frames)

    with frozen(target.lake.pid):
        target.crowd(HTTP2_CONNECTIONS, "h2").pour(request)
        time.sleep(AFTER_S)


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """A process stands still while the block runs."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def header_lists(target: Target) -> None:
    """HTTP/2: strangers' requests with the longest lists of fields, with bodies that do not end, on all streams."""
    streams = 128
    large = [(f"x-f{number:02}", "v" * 7800) for number in range(2)]

    def request(number: int) -> bytes:
        frames = [http2.preface()]
        for stream in range(streams):
            key, length = f"list-{number}-{stream}", {"content-length": "1000000"}
            fields = http2.fields("PUT", BUCKET, key, target.authority, None, length)
            frames.append(http2.headers(2 * stream + 1, [*fields, *large], ends_stream=False))
        return b"".join(frames)

    target.crowd(HTTP2_CONNECTIONS, "h2").pour(request)


def slow_streams(target: Target) -> None:
    """HTTP/2: an identity asks for large objects on many streams, with windows that are shut."""

    def request(number: int) -> bytes:
        frames = [http2.preface(window=0)]
        for stream in range(64):
            fields = http2.fields("GET", BUCKET, large(number + stream), target.authority, ATTACKER, {})
            frames.append(http2.headers(2 * stream + 1, fields, ends_stream=True))
        return b"".join(frames)

    target.crowd(HTTP2_CONNECTIONS, "h2").pour(request)


LIMITS = [Limits("default"), Limits("small", 256, 32)]

PLAIN: list[Callable[[Target], None]] = [
    silence,
    unfinished_heads,
    whole_heads,
    held_heads,
    endless_chunks,
    slow_readers,
    slow_relays,
    uploads,
    slow_lists,
    deletions,
    completions,
]
# Heads that do not end are not among them: the handshakes of one attacker outlast the 15 s of a head.
OVER_TLS: list[Callable[[Target], None]] = [silence, half_handshakes, slow_readers]
HTTP2: list[Callable[[Target], None]] = [full_windows, header_lists, slow_streams]


def large(number: int) -> str:
    """Returns the key of a large object."""
    return f"large-{number % OBJECTS}"


def main() -> None:
    """Parses, attacks, prints."""
    parser = argparse.ArgumentParser(prog="python -m bench.memory", description=__doc__)
    parser.add_argument("--shoal", type=Path, required=True, help="the binary, built with --release")
    parser.add_argument("--before", type=Path, help="an older binary that is attacked, too")
    parser.add_argument("--only", nargs="*", help="attacks by name")
    parser.add_argument("--limits", nargs="*", default=["default", "small"])
    parser.add_argument("--connections", type=int, default=2048, help="of the attackers, at most (2048)")
    arguments = parser.parse_args()
    binaries = [("now", arguments.shoal), *([("before", arguments.before)] if arguments.before else [])]
    with tempfile.TemporaryDirectory(prefix="shoal-memory-") as scratch:
        folder = Path(scratch)
        tls = make_certificate(folder)
        lake = Lake(arguments.shoal, folder, ())
        try:
            fill(lake)
            print("| limits | attack | binary | idle | beyond idle | bound | resident beyond idle |")
            print("|---|---|---|---|---|---|---|")
            for limits in (one for one in LIMITS if one.name in arguments.limits):
                attacks = [*(({}, one) for one in PLAIN), *((tls, one) for one in (*OVER_TLS, *HTTP2))]
                for environment, attack in attacks:
                    if not arguments.only or attack.__name__ in arguments.only:
                        for name, binary in binaries:
                            connections = min(arguments.connections, limits.connections)
                            measure(attack, (name, binary), limits, connections, lake, environment, folder)
        finally:
            lake.stop()


def fill(lake: Lake) -> None:
    """Writes the objects that the attackers request."""
    put(lake, "PUT", "", b"")
    for number in range(OBJECTS):
        put(lake, "PUT", large(number), bytes(OBJECT_BYTES))
    for number in range(LISTED):
        put(lake, "PUT", f"listed/{number:04}{'n' * 150}", b"")


def put(lake: Lake, method: str, key: str, body: bytes) -> None:
    """One write to the lake itself."""
    answer = send(lake.url, LAKE, method, BUCKET, key, body=body)
    if answer.status != 200:
        raise RuntimeError(f"the lake answers {answer.status} to {method} {key}")


def make_certificate(folder: Path) -> dict[str, str]:
    """Makes a certificate that no client checks, and returns the settings for it."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=localhost"]
    run(["openssl", "req", "-x509", *kind, "-keyout", key, "-out", certificate, "-days", "2"])
    return {"SHOAL_S3_TLS_CERT": str(certificate), "SHOAL_S3_TLS_KEY": str(key)}


def measure(
    attack: Callable[[Target], None],
    binary: tuple[str, Path],
    limits: Limits,
    connections: int,
    lake: Lake,
    tls: dict[str, str],
    folder: Path,
) -> None:
    """One attack on a new node; prints a row."""
    credentials = {"SHOAL_LAKE_ACCESS_KEY": LAKE.access_key, "SHOAL_LAKE_SECRET_KEY": LAKE.secret_key}
    node = Node(
        binary[1],
        Path(tempfile.mkdtemp(dir=folder)),
        lake.url,
        [],
        capacity="4GiB",
        environment={**credentials, **tls},
        tables=limits.table + "".join(IDENTITY.format(account) for account in ATTACKERS),
    )
    target = Target(node, limits, lake, bool(tls), connections)
    with node:
        idle = memory_of(node.pid)
        Path(f"/proc/{node.pid}/clear_refs").write_text("5")
        with MemoryWatch(node.pid) as watch:
            attack(target)
            time.sleep(AFTER_S)
        resident = highest_resident(node.pid)
        for crowd in target.crowds:
            crowd.close()
    title = f"{attack.__name__}{', TLS' if tls else ''}".replace("_", " ")
    beyond = (watch.peak.anonymous - idle.anonymous, resident - idle.resident)
    bound = limits.bound_mib(connections, over_tls=bool(tls), over_http2=attack in HTTP2)
    sizes = (idle.anonymous, beyond[0], bound * MIB, beyond[1])
    figures = " | ".join(str(size // MIB) for size in sizes)
    print(f"| {limits.name} | {title} | {binary[0]} | {figures} |", flush=True)
    for store in folder.glob("*/store"):
        shutil.rmtree(store)


def highest_resident(pid: int) -> int:
    """Returns the highest resident size in bytes since the kernel last reset it."""
    text = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("VmHWM:"))


if __name__ == "__main__":
    main()
