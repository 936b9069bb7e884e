"""Three nodes that cooperate, and give temporary keys of the lake's roles."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from real import together
from real.lakes import Lake
from real.node import Node
from real.processes import free_port
from real.together import NODES

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
        listed = ", ".join(json.dumps(role) for role in roles)
        for own, sts_port in zip(together.settings(), self._sts_ports, strict=True):
            own["tables"] += STS.format(roles=listed, port=sts_port)
            node = Node(binary, folder / own["name"], lake.url, [], block_size="1MiB", **own)
            self.nodes.append(node)

    def sts_url(self, node: int) -> str:
        """Returns the URL at which a node gives temporary keys."""
        return f"http://127.0.0.1:{self._sts_ports[node]}"

    def start(self) -> None:
        """Starts all nodes on the disks that they have, and waits until they know each other."""
        together.start(self.nodes)

    def stop(self) -> None:
        """Stops all nodes; their disks stay."""
        together.for_all(self.nodes, Node.stop)

    def __enter__(self) -> Cluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
