"""Nodes that write through: one, or several that share their blocks. They know all users of the suite, or none."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from real.balancer import Balancer
from real.cluster import COOPERATION
from real.lakes import Account, Lake
from real.node import Node
from real.processes import await_that, free_port
from spread import NODES
from users import KEEPER

# The accounts that nodes may have which know no user. The keeper may read everything. So may the owner at MinIO; at
# Ceph it is a user who may not read what others have.
KEEPERS, OWNERS, NONE = ACCOUNTS = ("keeper", "owner", "none")
_SOURCE = re.compile(r'^shoal_read_bytes_total\{source="(\w+)"\} (\d+)', re.MULTILINE)


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
    ) -> None:
        self._stack = ExitStack()
        common = {"environment": dict(environment or {})}
        if count == 1:
            self.all = [Node(binary, folder / "node", lake.url, accounts, **common)]
            self.url = self.all[0].url
            return
        self.all = [
            Node(
                binary,
                folder / f"node-{number}",
                lake.url,
                accounts,
                # Small ones, so that objects of a few parts lie on all nodes.
                block_size="1MiB",
                capacity="4GiB",
                name=f"node-{number}",
                topology=f"dc1/cluster-a/rack-{number}",
                **common,
            )
            for number in range(1, count + 1)
        ]
        ports = [free_port() for _ in self.all]
        for node, port in zip(self.all, ports, strict=True):
            seeds = ", ".join(f'"127.0.0.1:{other}"' for other in ports if other != port)
            node.tables = COOPERATION.format(port=port, seeds=seeds)
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

    def restart_cold(self) -> None:
        """Starts the nodes with empty stores; returns when they know each other."""
        self._for_all(Node.stop)
        self._for_all(Node.restart_cold)
        await_that("the nodes know each other", lambda: all(map(self._is_whole, self.all)))

    def bytes_by_source(self) -> Counter[str]:
        """Returns the bytes of objects that clients got since the nodes started, by where they came from."""
        counter: Counter[str] = Counter()
        for node in self.all:
            for source, count in _SOURCE.findall(node.metrics()):
                counter[source] += int(count)
        return counter

    def __enter__(self) -> Nodes:
        return self

    def __exit__(self, *_: object) -> None:
        self._for_all(Node.stop)
        self._stack.close()

    def _is_whole(self, node: Node) -> bool:
        return len(self.all) == 1 or len(json.loads(node.ask("/members"))["members"]) == len(self.all)

    def _for_all(self, action: Callable[[Node], object]) -> None:
        with ThreadPoolExecutor(len(self.all)) as pool:
            list(pool.map(action, self.all))
