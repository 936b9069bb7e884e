"""Nodes that write through: one, or several that share their blocks. They know all users of the suite, or none.

Several may give the users temporary keys.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from real import together
from real.balancer import Balancer
from real.lakes import Account, Lake
from real.node import Node
from real.processes import free_port
from spread import NODES
from temporary import table
from users import KEEPER

# The accounts that nodes may have which know no user. The keeper may read everything. So may the owner at MinIO; at
# Ceph it is a user who may not read what others have.
KEEPERS, OWNERS, NONE = ACCOUNTS = ("keeper", "owner", "none")
_SOURCE = re.compile(r'^shoal_read_bytes_total\{source="(\w+)"\} (\d+)', re.MULTILINE)
_KEYS = re.compile(r"^shoal_temporary_keys (\d+)", re.MULTILINE)


def unknown(account: str, lake: Lake) -> dict[str, str]:
    """Returns the settings of nodes that know no user and have one of `ACCOUNTS`, as variables."""
    settings = {"SHOAL_S3_UNKNOWN_IDENTITIES": "lake", "AWS_EC2_METADATA_DISABLED": "true"}
    if account == NONE:
        return settings
    found = KEEPER.account if account == KEEPERS else lake.account
    return {**settings, "SHOAL_LAKE_ACCESS_KEY": found.access_key, "SHOAL_LAKE_SECRET_KEY": found.secret_key}


class Nodes:
    """The nodes, each in a rack of its own; `restart_cold` starts them again, with empty stores."""

    def __init__(
        self,
        binary: Path,
        folder: Path,
        lake: Lake,
        accounts: Sequence[Account],
        count: int = 1,
        environment: Mapping[str, str] | None = None,
        *,
        with_sts: bool = False,
    ) -> None:
        self._stack = ExitStack()
        common = {"environment": dict(environment or {})}
        self._sts_ports = [free_port() for _ in range(count) if with_sts]
        if count == 1:
            self.all = [Node(binary, folder / "node", lake.url, accounts, **common)]
            self.url = self.all[0].url
            return
        settings = together.settings(count)
        for own, port in zip(settings, self._sts_ports, strict=False):
            own["tables"] += table(port)
        self.all = [
            Node(
                binary,
                folder / own["name"],
                lake.url,
                accounts,
                # Small ones, so that objects of a few parts lie on all nodes.
                block_size="1MiB",
                capacity="4GiB",
                **own,
                **common,
            )
            for own in settings
        ]
        # For the requests that the suite sends without boto3, such as those of presigned URLs.
        self.url = self._stack.enter_context(Balancer([node.s3_port for node in self.all])).url

    @property
    def plugins(self) -> tuple[str, ...]:
        """Returns the plugins with which the suite uses all nodes."""
        return () if len(self.all) == 1 else ("spread",)

    @property
    def variables(self) -> dict[str, str]:
        """Returns what the plugins want to know."""
        balancer = self.url.rpartition(":")[-1]
        return {NODES: ",".join([balancer, *(str(node.s3_port) for node in self.all)])}

    @property
    def sts_urls(self) -> list[str]:
        """Returns the URLs at which the nodes give temporary keys."""
        return [f"http://127.0.0.1:{port}" for port in self._sts_ports]

    def restart_cold(self) -> None:
        """Starts the nodes with empty stores; returns when they know each other."""
        together.for_all(self.all, Node.stop)
        if len(self.all) == 1:
            self.all[0].restart_cold()
        else:
            together.start(self.all, Node.restart_cold)

    def bytes_by_source(self) -> Counter[str]:
        """Returns the bytes of objects that clients got since the nodes started, by where they came from."""
        counter: Counter[str] = Counter()
        for node in self.all:
            for source, count in _SOURCE.findall(node.metrics()):
                counter[source] += int(count)
        return counter

    def temporary_keys(self) -> list[int]:
        """Returns how many temporary keys each node has."""
        return [int(_KEYS.findall(node.metrics())[0]) for node in self.all]

    def __enter__(self) -> Nodes:
        return self

    def __exit__(self, *_: object) -> None:
        together.for_all(self.all, Node.stop)
        self._stack.close()
