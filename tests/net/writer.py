"""A client in a rack that writes objects over a number of connections: JSON of `Writes` on stdin, seconds on stdout."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field

from real.lakes import Account
from real.wire import send

from .objects import contents


@dataclass(frozen=True)
class Writes:
    """The objects that a client writes, and the endpoint."""

    endpoint: str
    access_key: str
    secret_key: str
    bucket: str
    keys: Sequence[str]
    size: int
    headers: dict[str, str] = field(default_factory=dict)
    connections: int = 8

    def to_json(self) -> str:
        """Returns the plan as JSON."""
        return json.dumps(asdict(self))

    def seconds(self) -> float:
        """Writes all objects, and returns the seconds that it took. Raises if a write is refused."""
        bodies = {key: bytes(contents(key, self.size)) for key in self.keys}
        started = time.monotonic()
        with ThreadPoolExecutor(self.connections) as pool:
            list(pool.map(self._write, bodies.items()))
        return time.monotonic() - started

    def _write(self, item: tuple[str, bytes]) -> None:
        key, body = item
        account = Account(self.access_key, self.secret_key)
        answer = send(self.endpoint, account, "PUT", self.bucket, key, headers=self.headers, body=body)
        if answer.status != 200:
            raise RuntimeError(f"{self.endpoint} answered {answer.status} to a PUT of {key}: {answer.body[:200]!r}")
        mode = self.headers.get("x-shoal-write", "around")
        # An answer has no `x-shoal-write` if the node wrote around the tier, as it does by default.
        if answer.headers.get("x-shoal-write", "around") != mode:
            raise RuntimeError(f"a write was to go {mode}: {answer.headers}")


if __name__ == "__main__":
    print(Writes(**json.loads(sys.stdin.read())).seconds())
