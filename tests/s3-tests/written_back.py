"""Three nodes that acknowledge what the suite writes before the lake has it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from real import tier
from real.etcd import Etcd
from real.lakes import Account, Lake
from real.node import Node
from real.processes import await_that, free_port

NODES = 3
# A rule names one bucket, so all that the suite will make are named beforehand: it numbers them from 1 on.
BUCKET_PREFIX = "shoal-back-"
BUCKETS = 3000

TABLES = """
[cooperation]
mode = "hierarchy"
listen = "127.0.0.1:{port}"
seeds = [{seeds}]
layers = ["rack", "cluster"]
secret_key = "what the nodes of this cluster share"
"""


class Cluster:
    """The nodes, each in a rack of its own, so that the last layer is all of them. Their tier is in the lake."""

    def __init__(
        self, binary: Path, folder: Path, lake: Lake, accounts: Sequence[Account], environment: dict[str, str]
    ) -> None:
        self._lake = lake
        self._etcd = Etcd(folder / "etcd")
        self._ports = [free_port() for _ in range(NODES)]
        self.nodes = [
            Node(
                binary,
                folder / f"node-{number}",
                lake.url,
                accounts,
                # Small ones, so that objects of a few parts lie on all nodes.
                block_size="1MiB",
                capacity="4GiB",
                environment=environment,
                name=f"node-{number}",
                topology=f"dc1/cluster-a/rack-{number}",
            )
            for number in range(1, NODES + 1)
        ]

    @property
    def url(self) -> str:
        """Where clients speak S3 to the first node."""
        return self.nodes[0].url

    def restart(self, age: str) -> None:
        """Nodes with empty stores, which bring to the lake what is dirty for this long."""
        self.stop()
        prefixes = [f"s3://{BUCKET_PREFIX}{number}/" for number in range(1, BUCKETS + 1)]
        written_back = tier.tables(self._lake, self._etcd, age, prefixes)
        for node, port in zip(self.nodes, self._ports, strict=True):
            seeds = ", ".join(f'"127.0.0.1:{other}"' for other in self._ports if other != port)
            node.tables = TABLES.format(port=port, seeds=seeds) + written_back
        with ThreadPoolExecutor(NODES) as pool:
            list(pool.map(Node.restart_cold, self.nodes))
        await_that("the nodes know each other and the tier", lambda: all(self._is_whole(node) for node in self.nodes))

    def outcomes(self) -> dict[str, int]:
        """What became of the objects that were acknowledged, by word, on all nodes."""
        pages = [self._write_back(node)["outcomes"] for node in self.nodes]
        return {word: sum(page[word] for page in pages) for word in pages[0]}

    def stop(self) -> None:
        """Stops the nodes; their logs stay."""
        for node in self.nodes:
            node.stop()

    def __enter__(self) -> Cluster:
        tier.prepare(self._lake)
        self._etcd.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._etcd.__exit__()

    def _is_whole(self, node: Node) -> bool:
        members = json.loads(node.ask("/members"))["members"]
        return len(members) == NODES and all(each["reachable"] for each in self._write_back(node)["tiers"])

    @staticmethod
    def _write_back(node: Node) -> dict:
        return json.loads(node.ask("/status"))["write_back"]
