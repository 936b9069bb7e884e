"""Three nodes on loopback that find blocks by a directory in Redis, with the lake behind the proxy."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from real.node import Node
from real.processes import await_that, free_port

from .cluster import BUCKET, COOPERATION
from .loopback import LoopbackCluster
from .objects import contents
from .redis_servers import Redis
from .request_names import Request
from .stories import Broken

_NODES = 3
# The node of requests through the door that all nodes share.
ALL = 0
_DIRECTORY = """
[directory]
url = "{url}"
timeout = "{timeout}"
"""


@dataclass(frozen=True)
class Settings:
    """Settings of the nodes, and the Redis of a folder."""

    redis: Callable[[Path], Redis]
    block_size: str
    freshness: str
    """The time that an answer of the directory may take."""
    timeout: str


class DirectoryCluster(LoopbackCluster):
    """The cluster runs from the beginning of `with` to its end."""

    def __init__(self, binary: Path, folder: Path, lake: str, settings: Settings) -> None:
        super().__init__(binary, folder, lake)
        self._settings = settings
        self.redis = settings.redis(folder / "redis")

    def put(self, key: str, size: int) -> None:
        """Writes an object to the lake, past all nodes."""
        answer = self.put_at_lake(key, contents(key, size))
        if answer.status != 200:
            raise RuntimeError(f"the lake answered {answer.status} to a PUT of {key}")

    def start_anew(self) -> None:
        """Starts all nodes again with empty stores, before an empty directory."""
        for server in self.redis.servers:
            if server.is_master():
                server.flush()
        self.on_nodes(self.nodes, lambda number: self.nodes[number].restart_cold())
        self.await_members()

    def await_members(self) -> None:
        """Waits until every node knows every other, and the directory answers them all."""
        names = {node.name for node in self.nodes.values()}
        await_that("all nodes know each other", lambda: all(self._known(node) == names for node in self.nodes))
        await_that("the directory answers all nodes", self.directory_answers, 30)

    def directory_answers(self) -> bool:
        """Returns whether the directory answered the last request of each node."""
        return all(self.directory(number)["answers"] for number in self.nodes)

    def directory(self, node: int) -> dict[str, object]:
        """Returns the part of a node's `/status` about the directory."""
        page: dict[str, object] = json.loads(self.nodes[node].ask("/status"))["directory"]
        return page

    def version(self, node: int, key: str) -> str:
        """Returns the name among nodes of the version of an object that a node knows."""
        told = self.nodes[node].ask(f"/explain?object={quote(f's3://{BUCKET}/{key}', safe='')}")
        return str(json.loads(told)["version"]["id"])

    def unanswered(self) -> int:
        """Returns the number of requests that the directory has not answered until now, or that were held back."""
        requests = [kind for node in self.nodes if self.is_alive(node) for kind in _requests(self.directory(node))]
        return sum(kind["silent"] + kind["held-back"] for kind in requests)

    def hops(self) -> dict[str, int]:
        """Returns the requests for blocks between the living nodes, by how they ended."""
        start, counts = 'shoal_hops_total{result="', Counter[str]()
        for number, node in self.nodes.items():
            for line in node.metrics().splitlines() if self.is_alive(number) else ():
                if line.startswith(start):
                    result, _, count = line.removeprefix(start).partition('"} ')
                    counts[result] += int(count)
        return {result: count for result, count in counts.items() if count}

    def lake_bytes(self) -> int:
        """Returns the bytes of blocks that the lake has sent until now, also to nodes that were killed."""
        return self.proxy.block_bytes

    def await_lake_bytes(self, least: int, patience_s: float) -> None:
        """Waits until the lake has sent so many bytes of blocks."""
        deadline = time.monotonic() + patience_s
        while self.lake_bytes() < least:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the lake has sent {self.lake_bytes()} of {least} bytes after {patience_s:.0f} s")
            time.sleep(0.002)

    def sender(self, request: Request) -> int:
        """Returns the node whose connection to the lake brought a request."""
        inode = _inode(*request.ports)
        for number, node in self.nodes.items():
            if inode in _inodes(node.pid):
                return number
        raise Broken(f"no node has the connection with the ports {request.ports}")

    def _known(self, node: int) -> set[str]:
        page = json.loads(self.nodes[node].ask("/members"))
        return {member["name"] for member in page["members"]}

    def _build(self) -> None:
        self._stack.enter_context(self.redis)
        peers = {number: free_port() for number in range(1, _NODES + 1)}
        # Nodes with different URLs of the lake would not take its objects for the same.
        lake = self.proxy.door(ALL, "lake", self.lake.url)
        self.nodes = {number: self._node(number, peers, lake) for number in peers}
        self.on_nodes(self.nodes, lambda number: self.nodes[number].start())
        self.await_members()

    def _node(self, number: int, peers: dict[int, int], lake: str) -> Node:
        others = ", ".join(f'"127.0.0.1:{port}"' for other, port in peers.items() if other != number)
        own = f"127.0.0.1:{peers[number]}"
        cooperation = COOPERATION.format(
            listen=own, address=own, seeds=others, weight=100, period="90s", split='"adaptive"'
        )
        return Node(
            self.binary,
            self._folder / f"node-{number}",
            lake,
            [self.account],
            capacity="2GiB",
            block_size=self._settings.block_size,
            freshness=self._settings.freshness,
            name=f"node-{number}",
            topology=f"dc1/cluster-a/rack-{number}",
            tables=cooperation.replace('"hierarchy"', '"directory"')
            + _DIRECTORY.format(url=self.redis.url, timeout=self._settings.timeout),
        )


def _inode(own: int, other: int) -> str:
    """Returns the inode of the socket with this port of its own that is connected to the other."""
    lines = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    ends = f":{own:04X}", f":{other:04X}"
    return next(words[9] for words in lines if words[1].endswith(ends[0]) and words[2].endswith(ends[1]))


def _inodes(process: int) -> set[str]:
    """Returns the inodes of the open sockets of a process."""
    found = set()
    for descriptor in Path(f"/proc/{process}/fd").iterdir():
        # It may have been closed meanwhile.
        with suppress(OSError):
            found.add(str(descriptor.readlink()).removeprefix("socket:[").removesuffix("]"))
    return found


def _requests(directory: dict[str, object]) -> list[dict[str, int]]:
    requests = directory["requests"]
    return list(requests.values()) if isinstance(requests, dict) else []
