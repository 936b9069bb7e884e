"""Three nodes that cooperate, and give temporary keys of the lake's roles."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from real import together
from real.certificates import Certificate
from real.lakes import Account, Lake
from real.node import Node
from real.processes import free_port
from real.together import NODES

STS = """
[sts]
roles = [{roles}]
listen = "127.0.0.1:{port}"
{more}"""

TLS = """\
tls_cert = "{chain}"
tls_key = "{key}"
"""


class Cluster:
    """The nodes; they have the secrets of `accounts`, and of no other client. `endpoint` is that of STS.

    With a certificate, the last node gives temporary keys over TLS.
    """

    def __init__(
        self,
        binary: Path,
        folder: Path,
        lake: Lake,
        roles: Sequence[str],
        endpoint: str | None = None,
        accounts: Sequence[Account] = (),
        certificate: Certificate | None = None,
    ) -> None:
        self.nodes: list[Node] = []
        ports = [free_port() for _ in range(NODES)]
        self._sts_urls = [f"http://127.0.0.1:{port}" for port in ports]
        listed = ", ".join(json.dumps(role) for role in roles)
        more = ["" if endpoint is None else f'endpoint = "{endpoint}"\n'] * NODES
        if certificate is not None:
            self._sts_urls[-1] = f"https://127.0.0.1:{ports[-1]}"
            more[-1] += TLS.format(chain=certificate.chain, key=certificate.key)
        for own, port, its_more in zip(together.settings(), ports, more, strict=True):
            own["tables"] += STS.format(roles=listed, port=port, more=its_more)
            node = Node(binary, folder / own["name"], lake.url, accounts, block_size="1MiB", **own)
            self.nodes.append(node)

    def sts_url(self, node: int) -> str:
        """Returns the URL at which a node gives temporary keys."""
        return self._sts_urls[node]

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
