"""What a client has to do: read an object that the nodes have in their caches, and write another."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from botocore.client import BaseClient
from real.node import Node
from real.report import Difference

from .clients import Client

HOT, CONTENT = "hot", b"some bytes\n" * 500_000
TIMEOUT_S = 300


@dataclass(frozen=True)
class Trial:
    """A bucket with the object `HOT`, nodes that have it in their caches, and an owner who asks the lake itself."""

    bucket: str
    owner: BaseClient
    nodes: Sequence[Node]

    def run(self, client: Client, environment: Mapping[str, str], new: str) -> None:
        """Runs a client that has nothing but an environment. Raises a difference unless it does all that it has to."""
        before = self._lake_bytes()
        done = subprocess.run(
            [str(part) for part in (*client.command, self.bucket, HOT, new)],
            # object_store has names of its own for the endpoint.
            env={**environment, "AWS_ENDPOINT_URL": environment["AWS_ENDPOINT_URL_S3"], "AWS_ALLOW_HTTP": "true"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        if done.stdout.split() != [str(len(CONTENT)), "3"]:
            # Java tells the reason first, Python last.
            raise Difference(f"it printed {done.stdout!r}\n{done.stderr[:1500]}\n…\n{done.stderr[-1500:]}")
        if (came := self._lake_bytes() - before) >= len(CONTENT):
            raise Difference(f"{came} bytes came from the lake for a cached object of {len(CONTENT)}")
        if not self.owner.list_objects_v2(Bucket=self.bucket, Prefix=new).get("Contents"):
            raise Difference(f"the lake has nothing at {new}")

    def _lake_bytes(self) -> int:
        found = [re.search(r"^shoal_lake_bytes_total (\d+)", node.metrics(), re.MULTILINE) for node in self.nodes]
        return sum(int(each[1]) for each in found if each)
