"""Nodes on loopback that cooperate, each in a rack of its own, so that the last layer is all of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from .node import Node
from .processes import await_that, free_port

NODES = 3

_COOPERATION = """
[cooperation]
mode = "hierarchy"
listen = "127.0.0.1:{port}"
seeds = [{seeds}]
layers = ["rack", "cluster"]
secret_key = "what the nodes of this cluster share"
"""


def settings(count: int = NODES) -> list[dict[str, str]]:
    """Returns for each node what it has that the others do not: name, topology, and its tables."""
    ports = [free_port() for _ in range(count)]
    seeds = [", ".join(f'"127.0.0.1:{other}"' for other in ports if other != port) for port in ports]
    return [
        {
            "name": f"node-{number}",
            "topology": f"dc1/cluster-a/rack-{number}",
            "tables": _COOPERATION.format(port=port, seeds=others),
        }
        for number, (port, others) in enumerate(zip(ports, seeds, strict=True), 1)
    ]


def for_all(nodes: Sequence[Node], action: Callable[[Node], object]) -> None:
    """Does the same with all nodes at a time."""
    with ThreadPoolExecutor(len(nodes)) as pool:
        list(pool.map(action, nodes))


def start(nodes: Sequence[Node], action: Callable[[Node], object] = Node.start) -> None:
    """Starts all nodes on the disks that they have, or by another action, and waits until they know each other."""
    for_all(nodes, action)
    await_that("the nodes know each other", lambda: all(knows(node, len(nodes)) for node in nodes))


def knows(node: Node, count: int) -> bool:
    """Returns true if a node sees this many members."""
    return len(json.loads(node.ask("/members"))["members"]) == count
