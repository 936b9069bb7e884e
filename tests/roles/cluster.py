"""Three nodes that cooperate, and give temporary keys of the lake's roles."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from real.cluster import COOPERATION, NODES
from real.lakes import Lake
from real.node import Node
from real.processes import await_that, free_port

STS = """
[sts]
roles = [{roles}]
listen = "127.0.0.1:{port}"
"""


class Cluster:
    """The nodes; none of them has the secret of any client."""

    def __init__(self, binary: Path, folder: Path, lake: Lake, roles: Sequence[str]) -> None:
        self.nodes: list[Node] = []
        self._sts_ports = [free_port() for _ in range(NODES)]
        ports = [free_port() for _ in range(NODES)]
        listed = ", ".join(json.dumps(role) for role in roles)
        for number, (port, sts_port) in enumerate(zip(ports, self._sts_ports, strict=True), 1):
            seeds = ", ".join(f'"127.0.0.1:{other}"' for other in ports if other != port)
            tables = COOPERATION.format(port=port, seeds=seeds) + STS.format(roles=listed, port=sts_port)
            node = Node(
                binary,
                folder / f"node-{number}",
                lake.url,
                [],
                block_size="1MiB",
                name=f"node-{number}",
                topology=f"dc1/cluster-a/rack-{number}",
                tables=tables,
            )
            self.nodes.append(node)

    def sts_url(self, node: int) -> str:
        """Returns the URL at which a node gives temporary keys."""
        return f"http://127.0.0.1:{self._sts_ports[node]}"

    def start(self) -> None:
        """Starts all nodes on the disks that they have, and waits until they know each other."""
        with ThreadPoolExecutor(NODES) as pool:
            list(pool.map(Node.start, self.nodes))
        await_that("the nodes know each other", lambda: all(map(_is_whole, self.nodes)))

    def stop(self) -> None:
        """Stops all nodes; their disks stay."""
        with ThreadPoolExecutor(NODES) as pool:
            list(pool.map(Node.stop, self.nodes))

    def __enter__(self) -> Cluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _is_whole(node: Node) -> bool:
    return len(json.loads(node.ask("/members"))["members"]) == NODES
