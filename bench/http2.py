"""Just enough HTTP/2 to send requests that no client library would: frames as bytes, fields never compressed."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from contextlib import suppress

from real.lakes import Account
from real.signing import encode_path, signed_headers

_DATA, _HEADERS, _SETTINGS, _CONTINUATION = 0, 1, 4, 9
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1
_INITIAL_WINDOW_SIZE = 4
_FRAME_BYTES_MAX = 16 << 10


def preface(window: int | None = None) -> bytes:
    """Returns a client's first bytes. `window` is the number of bytes of an answer that it takes without an update."""
    settings = b"" if window is None else _INITIAL_WINDOW_SIZE.to_bytes(2) + window.to_bytes(4)
    # The server's settings, its windows among them, hold once they are acknowledged.
    return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(_SETTINGS, 0, 0, settings) + _frame(_SETTINGS, _ACK, 0, b"")


def fields(
    method: str, bucket: str, key: str, authority: str, account: Account | None, headers: dict[str, str]
) -> list[tuple[str, str]]:
    """Returns the fields of a request, signed by `account` if there is one."""
    path = encode_path(bucket, key)
    signed = headers if account is None else signed_headers(account, method, authority, path, "", headers)
    pseudo = [(":method", method), (":scheme", "https"), (":path", path), (":authority", authority)]
    return [*pseudo, *((name.lower(), value) for name, value in signed.items() if name != "Host")]


def headers(stream: int, named: Sequence[tuple[str, str]], *, ends_stream: bool) -> bytes:
    """Returns a request's head, in as many frames as it takes."""
    block = b"".join(b"\0" + _text(name) + _text(value) for name, value in named)
    parts = [block[start : start + _FRAME_BYTES_MAX] for start in range(0, len(block), _FRAME_BYTES_MAX)]
    frames = []
    for number, part in enumerate(parts):
        flags = (_END_STREAM if ends_stream and number == 0 else 0) | (_END_HEADERS if part is parts[-1] else 0)
        frames.append(_frame(_CONTINUATION if number else _HEADERS, flags, stream, part))
    return b"".join(frames)


def data(stream: int, size: int) -> bytes:
    """Returns the frames of so many bytes of a body, without its end."""
    sizes = [_FRAME_BYTES_MAX] * (size // _FRAME_BYTES_MAX) + [size % _FRAME_BYTES_MAX]
    return b"".join(_frame(_DATA, 0, stream, bytes(one)) for one in sizes)


def client_hello() -> bytes:
    """Returns the first message of a TLS handshake."""
    inbound, outbound = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = tls().wrap_bio(inbound, outbound)
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outbound.read()


def tls(*protocols: str) -> ssl.SSLContext:
    """Returns the context of a client that accepts any certificate."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(list(protocols) or ["http/1.1"])
    return context


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def _text(text: str) -> bytes:
    """Returns a string without Huffman's code, behind its length (RFC 7541, 5.1 and 5.2)."""
    length, prefix = len(text), 127
    if length < prefix:
        return bytes((length,)) + text.encode()
    encoded, length = bytearray((prefix,)), length - prefix
    while length >= 128:
        encoded.append(length % 128 + 128)
        length //= 128
    return bytes((*encoded, length)) + text.encode()
