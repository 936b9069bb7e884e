"""Three nodes on loopback that work together and write back, with an etcd and a store that they share."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path

from . import tier, together
from .etcd import Etcd
from .lakes import Account, Lake
from .node import Node
from .processes import await_that, run
from .together import NODES, for_all, knows


class Cluster:
    """The nodes, each in a rack of its own, so that the last layer is all of them; `restart` starts them."""

    def __init__(
        self,
        binary: Path,
        folder: Path,
        lake: Lake,
        accounts: Sequence[Account],
        *,
        store: Lake | None = None,
    ) -> None:
        """The bytes of dirty objects are in a bucket of `store`; without a store, in a bucket of the lake."""
        self._binary = binary
        self.store = store or lake
        self.etcd = Etcd(folder / "etcd")
        self._settings = together.settings()
        self.nodes = [
            Node(
                binary,
                folder / own["name"],
                lake.url,
                accounts,
                # Small ones, so that objects of a few parts lie on all nodes.
                block_size="1MiB",
                capacity="4GiB",
                **own,
            )
            for own in self._settings
        ]

    @property
    def url(self) -> str:
        """Returns the S3 URL of the first node."""
        return self.nodes[0].url

    def restart(self, tier_tables: str) -> None:
        """Starts the nodes with empty stores and these tables; returns when they know each other and the tier."""
        self.stop()
        for node, own in zip(self.nodes, self._settings, strict=True):
            node.tables = own["tables"] + tier_tables
        for_all(self.nodes, Node.restart_cold)
        await_that("the nodes know each other and the tier", lambda: all(self._is_whole(node) for node in self.nodes))

    def forget(self) -> None:
        """Removes all that the registry has, while no node runs."""
        first = base64.b64encode(b"\0").decode()
        self.etcd.ask("kv/deleterange", {"key": first, "range_end": first})

    def maps(self) -> int:
        """Returns the number of rules that have packed something."""
        first, end = (base64.b64encode(f"shoal/near/g{mark}".encode()).decode() for mark in "/0")
        answer = self.etcd.ask("kv/range", {"key": first, "range_end": end, "count_only": True})
        return int(str(answer.get("count", 0)))

    def outcomes(self) -> dict[str, int]:
        """Returns the number of acknowledged objects by their outcome, over all nodes."""
        pages = [self.write_back(node)["outcomes"] for node in self.nodes]
        return {word: sum(page[word] for page in pages) for word in pages[0]}

    def dirty(self) -> int:
        """Returns the number of objects that the lake does not have, or has not removed, yet."""
        pages = [self.write_back(node) for node in self.nodes]
        return sum(int(page["objects"]) + int(page["removals"]) for page in pages)

    def bring_to_the_lake(self, *, by_order: bool) -> None:
        """Waits until nothing is dirty, after an operator's order or only by the age of dirty objects.

        Raises if an object got another ETag at the lake, or if its last flush failed.
        """
        if by_order:
            node = self.nodes[-1]
            run([self._binary, "flush", "--node", node.admin, *node.shown])
        await_that("nothing is dirty", lambda: self.dirty() == 0)
        outcomes = self.outcomes()
        troubled = [each for node in self.nodes for each in self.write_back(node)["troubled"]]
        if outcomes["renamed"] > 0 or troubled:
            raise RuntimeError(f"{outcomes}, {troubled[:5]}")

    def errors(self) -> list[str]:
        """Returns the lines of the nodes' logs that need an operator."""
        lines = [line for node in self.nodes for line in node.log.read_text(errors="replace").splitlines()]
        return [line for line in lines if "ERROR" in line or "panicked" in line]

    def stop(self) -> None:
        """Stops the nodes; their logs stay."""
        for_all(self.nodes, Node.stop)

    def __enter__(self) -> Cluster:
        tier.prepare(self.store)
        self.etcd.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.etcd.__exit__()

    def _is_whole(self, node: Node) -> bool:
        return knows(node, NODES) and all(each["reachable"] for each in self.write_back(node)["tiers"])

    @staticmethod
    def write_back(node: Node) -> dict:
        """Returns the part of a node's `/status` about the objects that were written back."""
        return json.loads(node.ask("/status"))["write_back"]
