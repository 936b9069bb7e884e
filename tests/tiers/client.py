"""A client of a cluster that writes, removes and reads names, and remembers its requests and their answers."""

from __future__ import annotations

import http.client
import math
import random
import re
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from net.hand import body, value_of
from net.history import ABSENT, Operation
from real.lakes import Account
from real.wire import Answer, send

# From 4 MiB on an object is large.
LARGE_BYTES = 5 << 20
KINDS = {"small": (900, 70_000), "large": (LARGE_BYTES,), "parts": (LARGE_BYTES + 300_000,)}
# Longer than a node waits for a store that does not answer.
_TIMEOUT_S = 60
_PAUSE_S = 0.2
_CODE = re.compile(rb"<Code>(ServiceUnavailable|SlowDown)</Code>")


@dataclass(frozen=True)
class Outcome:
    """The outcome of a write, with its kind and its duration."""

    kind: str
    began_s: float
    seconds: float
    """Where the write went, if it was acknowledged: `back`, `through`, `around`."""
    went: str = ""
    """The answer or the error, if the write was not acknowledged."""
    refusal: str = ""


class RefusedError(Exception):
    """An answer other than success; `is_clear` if it is 503 and says why, as S3 does."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"{answer.status} {answer.body[:200]!r}")
        self.is_clear = answer.status == 503 and _CODE.search(answer.body) is not None


@dataclass
class Client:
    """Makes one request at a time. `name` is unique, so that the client's values are unique, too."""

    name: str
    urls: Sequence[str]
    account: Account
    bucket: str
    operations: list[Operation] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    """Refusals that are not 503 with an error document, and connections that end without an answer."""
    unclear: list[str] = field(default_factory=list)
    _written: int = 0

    def work(self, prefix: str, seed: int, stopped: threading.Event) -> None:
        """Writes and reads names below the prefix, some of which other clients write to as well."""
        chance = random.Random(f"{seed} {self.name}")
        number = 0
        while not stopped.wait(chance.uniform(0, 2 * _PAUSE_S)):
            key = f"{prefix}shared-{chance.randrange(4)}"
            if chance.random() < 0.7:
                number += 1
                key = f"{prefix}{self.name}-{number}"
            for action in ("PUT", *chance.choices(("GET", "PUT", "DELETE"), k=chance.randrange(3))):
                node = chance.randrange(len(self.urls))
                if action == "GET":
                    self.read(node, key)
                elif action == "DELETE":
                    self.remove(node, key)
                else:
                    self.write(node, key, chance.choice(("small", "small", "large", "parts")))

    def write(self, node: int, key: str, kind: str, size: int | None = None) -> Outcome:
        """Puts a new value of this kind, parts of it at the nodes in turn."""
        self._written += 1
        size = size or KINDS[kind][self._written % len(KINDS[kind])]
        data = body(f"{self.name}-{self._written}-{size}")
        began = time.monotonic()
        try:
            begin = self._upload if kind == "parts" else self._put
            answer = begin(node, key, data)
            went = answer.headers.get("x-shoal-write", "around")
            outcome = Outcome(kind, began, time.monotonic() - began, went=went)
        except (OSError, http.client.HTTPException, RefusedError) as error:
            self._heed(error)
            outcome = Outcome(kind, began, time.monotonic() - began, refusal=f"{type(error).__name__}: {error}")
        ended = math.inf if outcome.refusal else time.monotonic()
        note, answered = outcome.went or outcome.refusal, not outcome.refusal
        self.operations.append(Operation(key, "PUT", value_of(data), began, ended, node, note, answered=answered))
        self.outcomes.append(outcome)
        return outcome

    def remove(self, node: int, key: str) -> None:
        """Deletes a name."""
        began = time.monotonic()
        try:
            self._ask(node, "DELETE", key, known=(204, 404))
            ended, note, answered = time.monotonic(), "", True
        except (OSError, http.client.HTTPException, RefusedError) as error:
            self._heed(error)
            ended, note, answered = math.inf, str(error), False
        self.operations.append(Operation(key, "DELETE", ABSENT, began, ended, node, note, answered=answered))

    def read(self, node: int, key: str) -> str | None:
        """Returns the value of a name; None if the node refuses."""
        began = time.monotonic()
        try:
            answer = self._ask(node, "GET", key, known=(200, 404))
        except (OSError, http.client.HTTPException, RefusedError) as error:
            self._heed(error)
            return None
        value = value_of(answer.body) if answer.status == 200 else ABSENT
        self.operations.append(Operation(key, "GET", value, began, time.monotonic(), node))
        return value

    def _put(self, node: int, key: str, data: bytes) -> Answer:
        return self._ask(node, "PUT", key, data=data)

    def _upload(self, node: int, key: str, data: bytes) -> Answer:
        begun = self._ask(node, "POST", key, query={"uploads": ""})
        found = re.search(rb"<UploadId>([^<]+)</UploadId>", begun.body)
        if found is None:
            raise RefusedError(begun)
        upload = found[1].decode()
        parts = []
        for number, part in enumerate((data[:LARGE_BYTES], data[LARGE_BYTES:]), 1):
            at = (node + number) % len(self.urls)
            answer = self._ask(at, "PUT", key, query={"partNumber": str(number), "uploadId": upload}, data=part)
            parts.append(f"<Part><PartNumber>{number}</PartNumber><ETag>{answer.headers['etag']}</ETag></Part>")
        document = f"<CompleteMultipartUpload>{''.join(parts)}</CompleteMultipartUpload>".encode()
        answer = self._ask(node, "POST", key, query={"uploadId": upload}, data=document)
        if b"<Error>" in answer.body:
            raise RefusedError(answer)
        return answer

    def _ask(
        self,
        node: int,
        method: str,
        key: str,
        *,
        query: dict[str, str] | None = None,
        data: bytes = b"",
        known: Sequence[int] = (200,),
    ) -> Answer:
        answer = send(
            self.urls[node], self.account, method, self.bucket, key, query=query, body=data, timeout_s=_TIMEOUT_S
        )
        if answer.status not in known:
            raise RefusedError(answer)
        return answer

    def _heed(self, error: Exception) -> None:
        if not (isinstance(error, RefusedError) and error.is_clear):
            self.unclear.append(f"{type(error).__name__}: {error}")
