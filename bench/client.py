"""A client for reads that wrk cannot do: one timed read, a slow read, many readers that check every byte."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

from real.lakes import Account

from .load import Get

_PIECE = 1 << 18


@dataclass(frozen=True)
class Timing:
    """Seconds to the first byte of the body and to the last."""

    first_byte: float
    last_byte: float


class WrongAnswer(RuntimeError):
    """The answer has other bytes than the request asks for."""


def open_get(
    url: str, account: Account, get: Get, receive_buffer: int | None = None
) -> tuple[socket.socket, int, bytes]:
    """Sends a GET on a new connection; returns the socket, the body's length, and the body's first bytes."""
    parts = urlsplit(url)
    connection = socket.socket()
    if receive_buffer is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.settimeout(120)
    connection.connect((parts.hostname, parts.port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(get.wire(parts.netloc, account).encode())
    head = b""
    while b"\r\n\r\n" not in head:
        piece = connection.recv(65536)
        if not piece:
            raise WrongAnswer(f"{get}: the connection ended in the head: {head!r}")
        head += piece
    head, _, body = head.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    if lines[0].split()[1] not in ("200", "206"):
        raise WrongAnswer(f"{get}: {lines[0]} {body[:300]!r}")
    return connection, int(fields["content-length"]), body


def read(url: str, account: Account, get: Get, expected: memoryview) -> Timing:
    """Reads an object or range, compares every byte as it arrives, and tells how long it took."""
    buffer = bytearray(_PIECE)
    started = time.perf_counter()
    connection, length, body = open_get(url, account, get)
    with connection:
        first_byte = time.perf_counter() - started
        if length != len(expected):
            raise WrongAnswer(f"{get}: {length} bytes instead of {len(expected)}")
        have = len(body)
        wrong = body != expected[:have]
        while have < length and not wrong:
            got = connection.recv_into(buffer)
            if got == 0:
                raise WrongAnswer(f"{get}: ended after {have} of {length} bytes")
            # A bytearray compares by memcmp; a memoryview on the left would go byte by byte.
            wrong = (buffer if got == _PIECE else buffer[:got]) != expected[have : have + got]
            have += got
    if wrong:
        raise WrongAnswer(f"{get}: other bytes before {have}")
    return Timing(first_byte, time.perf_counter() - started)


def read_slowly(url: str, account: Account, get: Get, bytes_per_second: int, seconds: float) -> int:
    """Reads at a steady rate for a while, then hangs up; returns how much was read."""
    connection, length, body = open_get(url, account, get, receive_buffer=65536)
    have, started = len(body), time.monotonic()
    with connection:
        while have < length and (elapsed := time.monotonic() - started) < seconds:
            if have > elapsed * bytes_per_second:
                time.sleep(0.02)
                continue
            piece = connection.recv(65536)
            if not piece:
                raise WrongAnswer(f"{get}: ended after {have} of {length} bytes")
            have += len(piece)
    return have
