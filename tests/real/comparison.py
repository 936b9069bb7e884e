"""One client's checks at a lake and at the places in front of it, in a bucket for each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .clients import Check
from .lakes import Lake
from .report import Difference, Report, Skip, first_differences
from .store import Store
from .wire import send


class Comparison:
    """A client at a lake. It keeps the results there, so that it can compare several other places with them."""

    def __init__(
        self, report: Report, lake: Lake, client: str, folder: Path, may_lack: frozenset[str] = frozenset()
    ) -> None:
        """The other places need not show the headers that they may lack."""
        self._report, self._lake, self._client, self._folder = report, lake, client, folder
        self._may_lack = may_lack
        self.direct = self._store("lake", lake.url, lake.url)
        self._seen: dict[str, dict[str, object] | Skip] = {}

    def run(self, checks: Sequence[Check], side: str, url: str, others_url: str) -> Store:
        """Makes the checks at this URL. The side names the place; the report leaves it out where there is one."""
        store = self._store(side, url, others_url)
        names = [self._lake.name, self._client, *([] if side == "node" else [side])]
        for check in checks:
            with self._report.check(*names, check.__name__.replace("_", " ")):
                expected, found = self._expected(check), check(store)
                differences = first_differences(without(self._may_lack, expected, found), found)
                if differences:
                    raise Difference("; ".join(differences))
        return store

    def _expected(self, check: Check) -> dict[str, object]:
        name = check.__name__
        if name not in self._seen:
            try:
                self._seen[name] = check(self.direct)
            except Exception as error:
                self._seen[name] = Skip(f"the lake itself: {type(error).__name__}: {error}")
        seen = self._seen[name]
        if isinstance(seen, Skip):
            raise seen
        return seen

    def _store(self, side: str, url: str, others_url: str) -> Store:
        """Makes a bucket, past the node, and a folder for local files; returns the store with them."""
        bucket = bucket_of(self._client, side)
        scratch = self._folder / bucket
        store = Store(url, others_url, self._lake.account, bucket, scratch, self._lake.knows_checksums)
        scratch.mkdir(parents=True)
        answer = send(self._lake.url, store.account, "PUT", bucket)
        if answer.status != 200:
            raise RuntimeError(f"the lake refused a bucket: {answer.status} {answer.body!r}")
        return store


def without(may_lack: frozenset[str], expected: object, found: object) -> object:
    """Returns `expected` without headers of these names that `found` lacks. A header with another value stays."""
    if isinstance(expected, dict) and isinstance(found, dict):
        return {
            name: without(may_lack, value, found.get(name))
            for name, value in expected.items()
            if name in found or name not in may_lack
        }
    if isinstance(expected, list | tuple) and isinstance(found, list | tuple) and len(expected) == len(found):
        return [without(may_lack, one, other) for one, other in zip(expected, found, strict=True)]
    return expected


def bucket_of(client: str, side: str) -> str:
    """Returns the name of the bucket that a client has at one of the places."""
    return f"{client}-{side}"
