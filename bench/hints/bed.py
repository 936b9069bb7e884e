"""A lake with the inputs of the application, and three nodes before it whose link is metered."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from hadoop import bucket
from real import together
from real.lakes import LAKES, Account, Lake
from real.node import Node
from real.processes import Process, await_that, run
from real.wire import send

from bench.hints.spark import NAMESPACE

BUCKET = "data"
SALES, EVENTS, REGIONS = "sales/", "events/", "ref/"
INPUTS = (SALES, EVENTS, REGIONS)
OUTPUTS = ("tmp/", "out/")
REGION_ROWS = 8
MIB = 1 << 20
_RULE = f"""
[[hints.rule]]
namespace = "{NAMESPACE}"
"""
# Crockford's base 32, in which a ULID is written; its first ten digits are milliseconds.
_ULID_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


@dataclass(frozen=True)
class Get:
    """A read of an object, as the node that answered it logs it."""

    at: float
    key: str
    bytes: int
    """Bytes of these for which the client waited for the lake."""
    lake_bytes: int


class Bed:
    """The lake and the nodes. Clients use the first node, and the listener of Spark the last one."""

    def __init__(self, binary: Path, folder: Path, bandwidth: str, link: int, prefix: Sequence[str]) -> None:
        """The nodes together have `bandwidth`, of which hints may use `link` percent. `prefix` is of their commands."""
        self._binary, self._link = binary, link
        self.lake: Lake = LAKES["minio"](folder / "lake", ())
        self.nodes = [
            Node(
                binary,
                folder / own["name"],
                self.lake.url,
                [self.lake.account],
                name=own["name"],
                topology=own["topology"],
                tables=own["tables"] + _RULE,
                within=prefix,
                environment={"SHOAL_LAKE_BANDWIDTH": f"{bandwidth} shared", "SHOAL_LOG_ACCESS": "true"}
                | {"SHOAL_LOG_FORMAT": "json"},
            )
            for own in together.settings()
        ]

    def __enter__(self) -> Bed:
        bucket.make(self.lake.url, self.account, BUCKET)
        regions = "".join(f"{number},region-{number}\n" for number in range(REGION_ROWS))
        body = f"region_id,region\n{regions}".encode()
        answer = send(self.lake.url, self.account, "PUT", BUCKET, f"{REGIONS}regions.csv", body=body)
        if answer.status != 200:
            raise RuntimeError(f"the lake answered {answer.status} to a PUT")
        return self

    def __exit__(self, *_: object) -> None:
        together.for_all(self.nodes, Node.stop)
        self.lake.stop()

    @property
    def account(self) -> Account:
        """Returns the account that signs every request."""
        return self.lake.account

    def pids(self) -> list[int]:
        """Returns the processes of the lake and the nodes."""
        lake = [process.pid for process in self.lake.processes if isinstance(process, Process)]
        return lake + [node.pid for node in self.nodes]

    def sizes(self) -> dict[str, int]:
        """Returns the bytes of each input."""
        listing = bucket.listing(self.lake.url, self.account, BUCKET)
        return {name: sum(size for key, (_, size) in listing.items() if key.startswith(name)) for name in INPUTS}

    def remove_outputs(self) -> None:
        """Removes from the lake what an earlier run wrote."""
        for key in bucket.listing(self.lake.url, self.account, BUCKET):
            if key.startswith(OUTPUTS):
                send(self.lake.url, self.account, "DELETE", BUCKET, key)

    def start_fresh(self) -> None:
        """Starts the nodes with empty stores: they hold nothing, and know no job."""
        self._set_link(self._link)
        together.for_all(self.nodes, Node.stop)
        together.for_all(self.nodes, Node.forget_old_stores)
        together.start(self.nodes, Node.restart_cold)

    def start_again(self, link: int | None = None) -> None:
        """Empties the cache and starts the nodes again: they hold no input, and know the jobs of earlier runs."""
        self._command("evict", f"s3://{BUCKET}/", "--wait")
        together.for_all(self.nodes, Node.stop)
        self._set_link(self._link if link is None else link)
        together.start(self.nodes)
        page = json.loads(self._command("cached", f"s3://{BUCKET}/", "--wait", "--json"))
        if held := sum(node["bytes"] for node in page["nodes"].values()):
            raise RuntimeError(f"the nodes still hold {held} bytes of the inputs")

    def prefetch(self) -> None:
        """Brings all inputs into the cache."""
        for name in INPUTS:
            self._command("prefetch", f"s3://{BUCKET}/{name}", "--wait")
        together.for_all(self.nodes, Node.settle)

    def lake_bytes(self) -> dict[str, int]:
        """Returns the bytes that have come over the link, by their class."""
        found: dict[str, int] = {}
        for name, value in self._series(r'shoal_link_bytes_total\{direction="down",class="([\w-]+)"\}'):
            found[name] = found.get(name, 0) + int(value)
        return found

    def early_s(self) -> float | None:
        """Returns the mean time between the arrival of a block and its first use; nothing if no block was used."""
        used = sum(value for _, value in self._series(r"(shoal_early_blocks_used_total)"))
        seconds = sum(value for _, value in self._series(r"(shoal_early_seconds_total)"))
        return seconds / used if used else None

    def hints(self, since: float) -> list[dict]:
        """Returns the hints that nodes took since a time, once all of them are over."""

        def taken() -> list[dict]:
            page = json.loads(self.nodes[0].ask("/hints"))["hints"]
            return [hint for hint in page if taken_at(hint) >= since]

        def is_over(hint: dict) -> bool:
            return not hint["keeps"] and hint["task"]["state"] in {"done", "failed", "cancelled"}

        await_that("all hints are over", lambda: all(map(is_over, taken())), 30)
        return taken()

    def gets(self, since: float) -> list[Get]:
        """Returns the reads of objects that clients have sent since a time."""
        found: list[Get] = []
        for line in self.nodes[0].log.read_text(errors="replace").splitlines():
            if '"get_object"' not in line:
                continue
            fields = json.loads(line)
            fields = fields.get("fields", fields)
            at = datetime.fromisoformat(fields["time"]).timestamp()
            if at >= since:
                found.append(Get(at, fields["key"], fields["bytes"], fields["lake_bytes"]))
        return found

    def _series(self, pattern: str) -> list[tuple[str, float]]:
        pages = [node.metrics() for node in self.nodes]
        found = [re.findall(rf"^{pattern} (\S+)$", page, re.MULTILINE) for page in pages]
        return [(name, float(value)) for page in found for name, value in page]

    def _set_link(self, percent: int) -> None:
        for node in self.nodes:
            node.environment["SHOAL_HINTS_LINK"] = str(percent)

    def _command(self, *arguments: str) -> str:
        return run([self._binary, *arguments, "--node", self.nodes[0].admin])


def taken_at(hint: dict) -> float:
    """Returns when a node took the event of a hint."""
    milliseconds = 0
    for digit in hint["task"]["id"][:10]:
        milliseconds = milliseconds * 32 + _ULID_DIGITS.index(digit)
    return milliseconds / 1000


def first_hint(hints: Sequence[dict], name: str) -> float | None:
    """Returns when a node first took an event that made it bring something of an input."""
    whole = f"s3://{BUCKET}/{name}".rstrip("/")

    def names(hint: dict) -> bool:
        return any(one.rstrip("/") == whole or one.startswith(f"{whole}/") for one in hint["task"]["hint"]["inputs"])

    return min((taken_at(hint) for hint in hints if names(hint)), default=None)
