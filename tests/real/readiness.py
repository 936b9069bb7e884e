"""A node whose accounts the lake refuses is not ready, says which setting is wrong, and its clients get 502."""

from __future__ import annotations

import json
import urllib.error
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .lakes import Lake
from .node import IDENTITY, Node
from .processes import await_that
from .report import Difference, Report
from .wire import send

_UNREADY, _REFUSED = "lake-never-answered", "lake-account-refused"
# Ceph checks no region, and MinIO none unless it is told its own.
_CHECK_REGIONS = ("versitygw",)


@dataclass(frozen=True)
class Mistake:
    """What is wrong with a node's settings, and what the node says about it."""

    name: str
    says: str
    secret: str = ""
    key: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


MISTAKES = (
    Mistake("nothing", ""),
    Mistake("a wrong secret", "another secret", secret="not-the-secret"),
    Mistake("a key that the lake does not know", "does not know the access key", key="NOT-A-KEY"),
    Mistake("a wrong region", "set [lake] region", environment={"SHOAL_LAKE_REGION": "eu-west-9"}),
)


class _Misconfigured(Node):
    """A node that has started when it has asked the lake."""

    def conditions(self) -> dict[str, str]:
        """Returns the conditions that hold, with their texts."""
        try:
            page = self.ask("/readyz")
        except urllib.error.HTTPError as error:
            page = error.read().decode()
        told = json.loads(page)
        if told["missing"]:
            return {"missing": ""}
        return {each["condition"]: each["detail"] for each in told["conditions"]}

    def is_ready(self) -> bool:
        """Returns whether a balancer may send clients to it."""
        return super()._ready()

    def _ready(self) -> bool:
        try:
            return "missing" not in self.conditions()
        except OSError:
            return False


def prove(report: Report, lake: Lake, binary: Path, folder: Path) -> None:
    """Starts a node with each mistake."""
    for number, mistake in enumerate(MISTAKES):
        with report.check(lake.name, "ready", mistake.name):
            _check(mistake, lake, binary, folder / f"{lake.name}-ready-{number}")


def _check(mistake: Mistake, lake: Lake, binary: Path, folder: Path) -> None:
    account = lake.account
    ours = f'lake_access_key = "{account.access_key}"\nlake_secret_key = "{account.secret_key}"'
    theirs = (
        f'lake_access_key = "{mistake.key or account.access_key}"\n'
        f'lake_secret_key = "{mistake.secret or account.secret_key}"'
    )
    identity = IDENTITY.format(access_key=account.access_key, secret_key=account.secret_key).replace(ours, theirs)
    node = _Misconfigured(binary, folder, lake.url, [], tables=identity, environment=dict(mistake.environment))
    with node:
        await_that("the node has asked the lake", lambda: node.is_ready() or _REFUSED in node.conditions())
        held = node.conditions()
        is_told = _UNREADY in held and mistake.says in held.get(_REFUSED, "")
        if mistake.environment:
            if not is_told and (held or lake.name in _CHECK_REGIONS):
                raise Difference(f"the node says {held}")
            return
        answer = send(node.url, account, "GET", "shoal-not-a-bucket", query={"list-type": "2"})
        is_mistaken = bool(mistake.secret or mistake.key)
        if answer.status != (502 if is_mistaken else 404) or is_told != is_mistaken:
            raise Difference(f"clients get {answer.status} {answer.body[:200]!r}, and the node says {held}")
