"""Requests to one admin port: bounded in time and size, and repeated only where that is safe."""

from __future__ import annotations

import copy
import http.client
import io
import json
import logging
import re
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import IO, Union
from urllib.parse import urlencode, urlsplit

from shoal._answer import Answer
from shoal.errors import NothingToDo, ShoalError, TimedOut, UnexpectedAnswer, Unreachable, of_answer

_log = logging.getLogger("shoal")

StrPath = Union[str, "PathLike[str]"]

# A list of a thousand tasks, each with its errors, has some megabytes.
_ANSWER_BYTES_MAX = 64 << 20
_PIECE_BYTES = 64 << 10

# Pauses before a request is sent again.
_PAUSES_S = (0.1, 0.2, 0.4)

# What a proxy in front of a node answers in its place.
_PASSING = (502, 503, 504)


@dataclass(frozen=True)
class Body:
    """The body of an order: its length must be known, because a node waits for no slow process."""

    content: IO[bytes]
    length: int
    content_type: str

    @classmethod
    def of_json(cls, value: object) -> Body:
        """Returns a value as JSON."""
        content = json.dumps(value, allow_nan=False).encode()
        return cls(io.BytesIO(content), len(content), "application/json")


class _Secret:
    """A token that no repr, no log and no traceback shows."""

    __slots__ = ("_token",)

    def __init__(self, token: str) -> None:
        if not re.fullmatch(r"[\x21-\x7e]+", token):
            raise ValueError("the token is empty, or has spaces or characters other than ASCII")
        self._token = token

    def __repr__(self) -> str:
        return "***"

    def __reduce__(self) -> str:
        raise TypeError("a token is not pickled: make the client anew in each process")

    def header(self) -> str:
        return f"Bearer {self._token}"


class _NotSent(Unreachable):
    """There was no connection, so the node has seen nothing of the request."""


class Transport:
    """One admin port. Each request has a connection of its own, so threads may share this."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None,
        ca: StrPath | None,
        cert: StrPath | None,
        key: StrPath | None,
        timeout: float,
    ) -> None:
        if not timeout > 0:
            raise ValueError("timeout is a number of seconds above 0")
        self.scheme, self.host, self.port = _place(url)
        self.timeout = timeout
        self._token = None if token is None else _Secret(token.strip())
        self._tls = _tls(self.scheme, ca, cert, key)

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def within(self, seconds: float) -> Transport:
        """Returns the same port with this time limit, if it is shorter than the own one."""
        other = copy.copy(self)
        other.timeout = min(self.timeout, seconds)
        return other

    def get(self, path: str, query: Mapping[str, str] | None = None, *, accepted: int | None = None) -> Answer:
        """Asks, and asks again after a failure. Another status than success may be `accepted` as an answer."""
        return self._parsed(path, *self._question(path, query, accepted))

    def text(self, path: str) -> str:
        """Asks as `get` does for a page that is text."""
        _, content = self._question(path, None, None)
        return content.decode(errors="replace")

    def post(self, path: str, query: Mapping[str, str] | None = None, body: Body | None = None) -> Answer:
        """Gives an order. It is sent again only if the node has seen nothing of it: else it could be taken twice."""
        return self._parsed(path, *self._order("POST", path, query, body))

    def notify(self, path: str, body: Body) -> None:
        """Sends as `post` does. The answer is a status alone."""
        self._order("POST", path, None, body)

    def delete(self, path: str) -> Answer:
        """Gives an order as `post` does."""
        return self._parsed(path, *self._order("DELETE", path, None, None))

    def _question(self, path: str, query: Mapping[str, str] | None, accepted: int | None) -> tuple[int, bytes]:
        for pause in _PAUSES_S:
            try:
                return self._ask("GET", path, query, None, accepted)
            except TimedOut:
                raise
            except ShoalError as error:
                if not isinstance(error, Unreachable) and error.status not in _PASSING:
                    raise
                _log.debug("GET %s is sent again: %s", path, error.message)
            time.sleep(pause)
        return self._ask("GET", path, query, None, accepted)

    def _order(self, method: str, path: str, query: Mapping[str, str] | None, body: Body | None) -> tuple[int, bytes]:
        for pause in _PAUSES_S:
            try:
                return self._ask(method, path, query, body)
            except _NotSent as error:
                _log.debug("%s %s is sent again: %s", method, path, error.message)
            time.sleep(pause)
        return self._ask(method, path, query, body)

    def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Body | None,
        accepted: int | None = None,
    ) -> tuple[int, bytes]:
        target = f"{path}?{urlencode(query)}" if query else path
        connection = self._connection()
        try:
            self._connect(connection)
            status, content = self._exchange(connection, method, target, body)
        except socket.timeout as error:
            raise TimedOut(f"{self.url} did not answer within {self.timeout:g} s") from error
        except ssl.SSLError as error:
            # A node refuses a certificate of a client after the client's side of the handshake.
            raise Unreachable(f"{self.url} refuses the connection: {error}", hint=_HINT_CERTIFICATE) from error
        except (ConnectionError, http.client.IncompleteRead) as error:
            raise Unreachable(f"{self.url} broke off: {error}") from error
        except http.client.HTTPException as error:
            hint = "give the URL of an admin port; with https:// if the port is encrypted"
            raise UnexpectedAnswer(f"{self.url} does not answer in HTTP: {error}", hint=hint) from error
        except OSError as error:
            raise Unreachable(f"{self.url} broke off: {error}") from error
        finally:
            connection.close()
        if not 200 <= status < 300 and status != accepted:
            raise of_answer(status, content.decode(errors="replace"))
        return status, content

    def _parsed(self, path: str, status: int, content: bytes) -> Answer:
        if status == http.client.NO_CONTENT:
            raise NothingToDo
        try:
            answer = json.loads(content)
        except ValueError as error:
            hint = "give the URL of an admin port of a node"
            raise UnexpectedAnswer(f"{self.url}{path} is not JSON", status=status, hint=hint) from error
        return Answer(answer, path)

    def _connection(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self.host, self.port, timeout=self.timeout)
        return http.client.HTTPSConnection(self.host, self.port, timeout=self.timeout, context=self._tls)

    def _connect(self, connection: http.client.HTTPConnection) -> None:
        try:
            connection.connect()
        except socket.timeout as error:
            raise TimedOut(f"{self.url} did not accept a connection within {self.timeout:g} s") from error
        except ssl.SSLCertVerificationError as error:
            hint = "give the certificates that sign those of admin ports as `ca`"
            raise Unreachable(f"{self.url} is not trusted: {error.verify_message}", hint=hint) from error
        except ssl.SSLError as error:
            raise Unreachable(f"{self.url} does not agree on TLS: {error}", hint=_HINT_CERTIFICATE) from error
        except OSError as error:
            hint = "check the URL, and that the node runs"
            raise _NotSent(f"{self.url} cannot be reached: {error}", hint=hint) from error

    def _exchange(
        self, connection: http.client.HTTPConnection, method: str, target: str, body: Body | None
    ) -> tuple[int, bytes]:
        connection.putrequest(method, target)
        connection.putheader("accept", "application/json, text/plain")
        connection.putheader("user-agent", "shoal-python")
        if self._token is not None:
            connection.putheader("authorization", self._token.header())
        if body is not None:
            connection.putheader("content-type", body.content_type)
        if method == "POST":
            connection.putheader("content-length", str(0 if body is None else body.length))
        wire = connection.sock
        try:
            connection.endheaders()
            if body is not None:
                _send(connection, body)
        except (BrokenPipeError, ConnectionResetError):
            # A node may refuse an order before the end of its body; the answer says why.
            _log.debug("%s ended the request early", self.url)
        deadline = time.monotonic() + self.timeout
        response = connection.getresponse()
        pieces, size = [], 0
        # A response that is complete has closed the connection.
        while not response.isclosed():
            left = deadline - time.monotonic()
            if left <= 0:
                raise socket.timeout
            wire.settimeout(left)
            piece = response.read1(_PIECE_BYTES)
            if not piece:
                break
            size += len(piece)
            if size > _ANSWER_BYTES_MAX:
                raise UnexpectedAnswer(f"the answer of {self.url} is longer than {_ANSWER_BYTES_MAX} bytes")
            pieces.append(piece)
        if response.length:
            raise http.client.IncompleteRead(b"", response.length)
        return response.status, b"".join(pieces)


_HINT_CERTIFICATE = "give a certificate as `cert` and `key` that a CA of `[admin] client_ca` has signed"


def _send(connection: http.client.HTTPConnection, body: Body) -> None:
    # The body is sent from its start each time.
    body.content.seek(0)
    while True:
        piece = body.content.read(_PIECE_BYTES)
        if not piece:
            return
        connection.send(piece)


def _place(url: str) -> tuple[str, str, int]:
    # The URL is not in the message: it may hold a password.
    wrong = ValueError("write the URL as http://host:port, such as http://127.0.0.1:9100, or with https")
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise wrong from None
    extra = parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc
    if parts.scheme not in ("http", "https") or not host or extra:
        raise wrong
    return parts.scheme, host, port or (443 if parts.scheme == "https" else 80)


def _tls(scheme: str, ca: StrPath | None, cert: StrPath | None, key: StrPath | None) -> ssl.SSLContext | None:
    if (cert is None) != (key is None):
        raise ValueError("cert and key belong together: give both, or neither")
    if scheme == "http":
        if ca is not None or cert is not None:
            raise ValueError("ca, cert and key are of use with https:// only")
        return None
    context = ssl.create_default_context(cafile=ca)
    if cert is not None:
        # An encrypted key would be asked for at the terminal.
        context.load_cert_chain(cert, key, password=_no_password)
    return context


def _no_password() -> str:
    raise ValueError("the key is encrypted: give a key without a password")
