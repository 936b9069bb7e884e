"""Three nodes that cooperate, know no client, and leave the judgement to the lake."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from real import together
from real.lakes import Lake
from real.node import Node


def stranger_to_all(
    binary: Path,
    folder: Path,
    lake: Lake,
    name: str,
    *,
    lake_url: str | None = None,
    tables: str = "",
    within: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    kind: type[Node] = Node,
    has_account: bool = True,
    **settings: object,
) -> Node:
    """Returns a node without identities; it has the account of the lake's owner, or none at all."""
    own = {"SHOAL_S3_UNKNOWN_IDENTITIES": "lake", "AWS_EC2_METADATA_DISABLED": "true"}
    if has_account:
        own["SHOAL_LAKE_ACCESS_KEY"] = lake.account.access_key
        own["SHOAL_LAKE_SECRET_KEY"] = lake.account.secret_key
    return kind(
        binary,
        folder / name,
        lake_url or lake.url,
        [],
        block_size="1MiB",
        name=name,
        tables=tables,
        within=within,
        environment={**own, **(environment or {})},
        **settings,
    )


class Cluster:
    """The nodes, each in a rack of its own."""

    def __init__(self, binary: Path, folder: Path, lake: Lake) -> None:
        own = together.settings()
        self.nodes = [stranger_to_all(binary, folder, lake, **settings) for settings in own]

    def __enter__(self) -> Cluster:
        together.start(self.nodes)
        return self

    def __exit__(self, *_: object) -> None:
        together.for_all(self.nodes, Node.stop)

    def lake_bytes(self) -> int:
        """Returns the bytes of objects that all nodes have got from the lake."""
        return sum(counter(node, "shoal_lake_bytes_total") for node in self.nodes)


def counter(node: Node, name: str) -> int:
    """Returns the value of a metric with its labels as the node shows it; 0 if it does not."""
    found = re.search(rf"^{re.escape(name)} (\d+)", node.metrics(), re.MULTILINE)
    return 0 if found is None else int(found[1])
