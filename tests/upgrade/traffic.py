"""Clients that read and write through all nodes without a pause, and the answers that they got.

A client repeats a request at the next node if it got no connection, or if its kept-alive connection ended before the
first byte of an answer: that is what SDKs do. Any answer other than the expected one fails the test.
"""

from __future__ import annotations

import http.client
import random
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from net.hand import body
from real.lakes import Account
from real.signing import encode_path, encode_query, signed_headers
from real.wire import Answer

_TIMEOUT_S = 30
# One of three nodes is away at a time, and any kept-alive connection may have just ended.
_TRIES = 6
_PAUSE_S = 0.05
# The last one has two blocks.
_SIZES = (900, 900, 70_000, 1_500_000)
_OVERWRITES = 3


class Refused(Exception):
    """An answer other than the expected one, or none."""


@dataclass
class Ledger:
    """The objects of a bucket: the name of the bytes of each, which `body` makes, and what became of requests."""

    """Objects that no client writes."""
    fixed: Mapping[str, str]
    """Objects whose last write was acknowledged; None after a DELETE."""
    written: dict[str, str | None] = field(default_factory=dict)
    """Answers of reads by `X-Cache`, of writes by `x-shoal-write`, and repeated requests by their error."""
    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def shown(self) -> str:
        """Returns the first faults."""
        with self.lock:
            return f"clients got {len(self.faults)} faults:\n" + "\n".join(self.faults[:5])

    def count(self, what: str) -> None:
        """Counts something."""
        with self.lock:
            self.counts[what] += 1


class Client:
    """One client with a kept-alive connection to each node."""

    def __init__(self, urls: Sequence[str], account: Account, bucket: str, ledger: Ledger) -> None:
        self._hosts = [urlsplit(url).netloc for url in urls]
        self._account, self._bucket, self._ledger = account, bucket, ledger
        self._open: dict[int, http.client.HTTPConnection] = {}

    def put(self, node: int, key: str, name: str) -> None:
        """Writes the bytes of a name."""
        answer = self.ask(node, "PUT", key, data=body(name))
        self._ledger.count(f"write {answer.headers.get('x-shoal-write', 'around')}")

    def delete(self, node: int, key: str) -> None:
        """Removes an object."""
        self.ask(node, "DELETE", key, expected=204)
        self._ledger.count("delete")

    def check(self, node: int, key: str, name: str | None) -> str:
        """Reads an object, compares every byte, and returns the `X-Cache` of the answer."""
        answer = self.ask(node, "GET", key, expected=200 if name else 404)
        if name and answer.body != body(name):
            found = f"{len(answer.body)} bytes that begin {answer.body[:60]!r}"
            raise Refused(f"GET of {key}: {found}, not those of {name}")
        return answer.headers.get("x-cache", "absent" if name is None else "none")

    def ask(
        self,
        node: int,
        method: str,
        key: str,
        *,
        data: bytes = b"",
        query: Mapping[str, str] | None = None,
        expected: int = 200,
        elsewhere: bool = True,
    ) -> Answer:
        """Makes a request at this node, or at the next one that takes a connection if it may go elsewhere."""
        for attempt in range(_TRIES):
            at = (node + attempt) % len(self._hosts) if elsewhere else node
            try:
                answer = self._once(at, method, key, data, dict(query or {}))
            except (ConnectionError, http.client.RemoteDisconnected) as error:
                self._ledger.count(f"repeated after {type(error).__name__}")
                continue
            # A completion may fail after the head of its answer.
            if answer.status != expected or (method == "POST" and b"<Error>" in answer.body):
                raise Refused(f"{method} of {key} at node {at + 1}: {answer.status} {answer.body[:300]!r}")
            return answer
        raise Refused(f"{method} of {key}: no node takes a connection")

    def _once(self, at: int, method: str, key: str, data: bytes, query: dict[str, str]) -> Answer:
        host, path, text = self._hosts[at], encode_path(self._bucket, key), encode_query(query)
        connection = self._open.get(at) or http.client.HTTPConnection(host, timeout=_TIMEOUT_S)
        self._open[at] = connection
        headers = signed_headers(self._account, method, host, path, text)
        try:
            connection.request(method, path + (f"?{text}" if text else ""), data or None, headers)
            head = connection.getresponse()
        except BaseException:
            connection.close()
            raise
        try:
            # From the first byte on, an answer that breaks off is a fault, and not repeated.
            answer = Answer(head.status, {name.lower(): value for name, value in head.getheaders()}, head.read())
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise Refused(f"{method} of {key} at node {at + 1} broke off: {error!r}") from error
        return answer


class Traffic:
    """Readers and writers, from the beginning of `with` to its end."""

    def __init__(self, ledger: Ledger, prefixes: Sequence[str], client: Callable[[], Client], nodes: int) -> None:
        self._ledger, self._prefixes, self._client, self._nodes = ledger, prefixes, client, nodes
        self._stopped = threading.Event()
        works = [self._read, self._read, *(self._writer(number) for number in range(nodes))]
        self._threads = [
            threading.Thread(target=self._work, args=(work, number), daemon=True) for number, work in enumerate(works)
        ]

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _work(self, work: Callable[[Client, random.Random], None], seed: int) -> None:
        client, chance = self._client(), random.Random(seed)
        while not self._stopped.wait(chance.uniform(0, 2 * _PAUSE_S)):
            try:
                work(client, chance)
            except Exception as fault:
                with self._ledger.lock:
                    self._ledger.faults.append(f"{type(fault).__name__}: {fault}")

    def _read(self, client: Client, chance: random.Random) -> None:
        with self._ledger.lock:
            # Names with a dot are overwritten and removed by their writers, which compare them.
            written = [(key, name) for key, name in self._ledger.written.items() if name and "." not in key]
        key, name = chance.choice(written if written and chance.random() < 0.5 else list(self._ledger.fixed.items()))
        cache = client.check(chance.randrange(self._nodes), key, name)
        self._ledger.count(f"read {cache}")

    def _writer(self, own: int) -> Callable[[Client, random.Random], None]:
        number = 0

        def write(client: Client, chance: random.Random) -> None:
            nonlocal number
            number += 1
            prefix = chance.choice(self._prefixes)
            is_moving = chance.random() < 0.4
            key = f"{prefix}w{own}." + str(chance.randrange(_OVERWRITES)) if is_moving else f"{prefix}w{own}-{number}"
            name = f"{own}-{number}-{chance.choice(_SIZES)}"
            client.put(chance.randrange(self._nodes), key, name)
            if is_moving:
                # Every node answers with the last write.
                client.check(chance.randrange(self._nodes), key, name)
                if chance.random() < 0.3:
                    client.delete(chance.randrange(self._nodes), key)
                    client.check(chance.randrange(self._nodes), key, None)
                    name = ""
            with self._ledger.lock:
                self._ledger.written[key] = name or None

        return write
