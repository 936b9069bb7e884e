"""Nodes on loopback whose requests to their lake go through a proxy, which counts bytes and has faults happen."""

from __future__ import annotations

import http.client
import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Self, TypeVar

from real.lakes import Account, Lake
from real.node import Node
from real.processes import await_that
from real.wire import Answer, send

from .cluster import BUCKET, LAKES
from .hand import Hand, value_in
from .history import ABSENT, History
from .proxy import Proxy, Trap


class LoopbackCluster(ABC):
    """The cluster runs from the beginning of `with` to its end. Nodes are numbered from one."""

    def __init__(self, binary: Path, folder: Path, lake: str) -> None:
        self.binary, self._folder, self._lake = binary, folder, lake
        self._stack = ExitStack()
        self.proxy = Proxy()
        self.nodes: dict[int, Node] = {}

    def __enter__(self) -> Self:
        try:
            self.lake: Lake = self._stack.enter_context(LAKES[self._lake](self._folder / "lake"))
            self._stack.enter_context(self.proxy)
            await_that("the lake has a bucket", lambda: self.put_at_lake().status == 200)
            self._build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes.values():
            node.stop()
        self._stack.close()

    @property
    def account(self) -> Account:
        """Returns the account of all clients."""
        return self.lake.account

    def hand(self, history: History | None = None, timeout_s: float = 5) -> Hand:
        """Returns a client of all nodes."""
        urls = {number: node.url for number, node in self.nodes.items()}
        return Hand(urls, self.account, BUCKET, history or History([]), timeout_s)

    def kill(self, node: int) -> None:
        """Kills a node with SIGKILL."""
        os.kill(self.nodes[node].pid, signal.SIGKILL)

    def is_alive(self, node: int) -> bool:
        """Returns whether a node answers on its admin port."""
        try:
            self.nodes[node].ask("/healthz")
        except (OSError, http.client.HTTPException, RuntimeError):
            return False
        return True

    def freeze(self, node: int) -> None:
        """Stops a node with SIGSTOP."""
        os.kill(self.nodes[node].pid, signal.SIGSTOP)

    def thaw(self, node: int) -> None:
        """Lets a frozen node go on."""
        os.kill(self.nodes[node].pid, signal.SIGCONT)

    def set(self, node: int, name: str, **fault: object) -> Trap:
        """Sets a trap at a node's requests of this name."""
        return self.proxy.set(Trap(node, name, **fault))  # type: ignore[arg-type]

    def at_lake(self, key: str) -> str:
        """Returns the value of a name at the lake itself."""
        answer = send(self.lake.url, self.account, "GET", BUCKET, key)
        if answer.status == 404:
            return ABSENT
        return value_in(answer, "GET") if answer.status == 200 else f"status {answer.status}"

    def put_at_lake(self, key: str = "", body: bytes = b"") -> Answer:
        """Writes an object, or makes the bucket, past all nodes."""
        return send(self.lake.url, self.account, "PUT", BUCKET, key, body=body)

    def on_nodes(self, nodes: Collection[int], act: Callable[[int], object]) -> None:
        """Calls `act` for all these nodes at once."""
        with ThreadPoolExecutor(len(nodes)) as pool:
            list(pool.map(act, nodes))

    @abstractmethod
    def _build(self) -> None:
        """Starts the servers that nodes need besides a lake, and the nodes."""


ACluster = TypeVar("ACluster", bound=LoopbackCluster)


@dataclass(frozen=True)
class LoopbackStory(Generic[ACluster]):
    """A story about a cluster. `tell` returns one line about how it went."""

    tell: Callable[[ACluster, int], str]
    """Makes the cluster of a binary, a folder and the name of a lake."""
    cluster: Callable[[Path, Path, str], ACluster]
    """Whether the suite tells the story only on request."""
    is_long: bool = False
    """Whether the story needs the whole machine, so that no other is told beside it."""
    is_alone: bool = False
