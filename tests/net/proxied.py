"""Nodes on loopback with a lake, a tier and a registry behind a proxy, which has faults happen at chosen requests."""

from __future__ import annotations

import base64
import http.client
import json
import os
import signal
import urllib.request
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

from real import tier
from real.etcd import Etcd
from real.lakes import Account, Lake
from real.node import Node
from real.processes import await_that, free_port
from real.wire import Answer, send

from .cluster import BACK, BUCKET, COOPERATION, LAKES
from .hand import Hand, value_in
from .history import ABSENT, History
from .proxy import Proxy, Trap

# FENCE is twice as long.
_STALL_S = 1
# Entries, dirty objects, changes on their way, empty entries, bytes that are no longer needed: see `keys.rs`.
_WORK = "dqsbet"


@dataclass(frozen=True)
class Layout:
    """The parts of a cluster, and their settings."""

    nodes: int = 3
    """How long a write stays in the tier."""
    age: str = "1h"
    members: int = 1
    stall_s: float = _STALL_S
    capacity: str = "8GiB"
    """The quota of each member of etcd; zero for etcd's default."""
    quota_bytes: int = 0
    """Variables of a node, by its number, beside those of all."""
    environment: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    lake: str = "versitygw"


class ProxiedCluster:
    """The cluster runs from the beginning of `with` to its end. Nodes are numbered from one."""

    def __init__(self, binary: Path, folder: Path, layout: Layout) -> None:
        self._binary, self._folder, self._layout = binary, folder, layout
        self._stack = ExitStack()
        self.proxy = Proxy()
        self.nodes: dict[int, Node] = {}

    def __enter__(self) -> ProxiedCluster:
        try:
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

    @property
    def fence_s(self) -> float:
        """Returns the seconds after which a request without a waiting sender has no effect any more."""
        return 2 * self._layout.stall_s

    def hand(self, history: History | None = None, timeout_s: float = 5) -> Hand:
        """Returns a client of all nodes."""
        urls = {number: node.url for number, node in self.nodes.items()}
        return Hand(urls, self.account, BUCKET, history or History([]), timeout_s)

    def kill(self, node: int) -> None:
        """Kills a node with SIGKILL."""
        os.kill(self.nodes[node].pid, signal.SIGKILL)

    def await_silence(self, node: int) -> None:
        """Waits until no request of a dead node is under way."""
        await_that(f"nothing of node {node} is under way", lambda: self.proxy.is_silent(node), 30)

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

    def end_session(self, node: int) -> None:
        """Ends the session of a node that is dead, as the registry would do some seconds later."""
        key = base64.b64encode(f"shoal/near/n/{self.proxy.node_ids[node]}".encode()).decode()
        held = self.etcd.ask("kv/range", {"key": key}).get("kvs", [])
        for entry in held if isinstance(held, list) else ():
            self.etcd.ask("lease/revoke", {"ID": entry["lease"]})

    def start_again(self, node: int) -> None:
        """Starts a killed node again and ends its earlier session, so that it takes writes back at once."""
        self.nodes[node].stop()
        self.end_session(node)
        self.nodes[node].start()

    def set(self, node: int, name: str, **fault: object) -> Trap:
        """Sets a trap at a node's requests of this name."""
        return self.proxy.set(Trap(node, name, **fault))  # type: ignore[arg-type]

    def write_back(self, node: int) -> dict[str, object]:
        """Returns the part of a node's `/status` about its tier."""
        page: dict[str, object] = json.loads(self.nodes[node].ask("/status"))["write_back"]
        return page

    def clock(self, node: int) -> float:
        """Returns the time of day by a node's clock, from the first line of its log."""
        return datetime.fromisoformat(self.nodes[node].log.read_text().split(maxsplit=1)[0]).timestamp()

    def at_lake(self, key: str) -> str:
        """Returns the value of a name at the lake itself."""
        answer = send(self.lake.url, self.account, "GET", BUCKET, key)
        if answer.status == 404:
            return ABSENT
        return value_in(answer, "GET") if answer.status == 200 else f"status {answer.status}"

    def put_at_lake(self, key: str = "", body: bytes = b"") -> Answer:
        """Writes an object, or makes the bucket, past all nodes."""
        return send(self.lake.url, self.account, "PUT", BUCKET, key, body=body)

    def flush(self, node: int, prefix: str = BACK) -> None:
        """Asks a node to bring dirty objects below a prefix to the lake, and does not wait for that."""
        below = quote(f"s3://{BUCKET}/{prefix}", safe="")
        order = urllib.request.Request(f"{self.nodes[node].admin}/flush?below={below}", method="POST")
        with urllib.request.urlopen(order, timeout=10) as answer:
            answer.read()

    def left_in_registry(self, lists: str = _WORK) -> dict[str, int]:
        """Returns the number of keys for each kind of unfinished work; empty when everything is at the lake."""
        counts = {}
        for letter in lists:
            first, end = (base64.b64encode(f"shoal/near/{letter}{mark}".encode()).decode() for mark in "/0")
            answer = self.etcd.ask("kv/range", {"key": first, "range_end": end, "count_only": True})
            counts[letter] = int(str(answer.get("count", 0)))
        return {letter: count for letter, count in counts.items() if count}

    def on_nodes(self, nodes: Collection[int], act: Callable[[int], object]) -> None:
        """Calls `act` for all these nodes at once."""
        with ThreadPoolExecutor(len(nodes)) as pool:
            list(pool.map(act, nodes))

    def all_write_back(self, size: int = 0) -> bool:
        """Returns whether each node acknowledges a write of so many bytes before the lake has it."""
        hand = self.hand()
        for number in self.nodes:
            hand.put(f"{BACK}warm-{number}", f"warm-{size}", number)
        return sum(operation.note == "back" for operation in hand.history.operations) == len(self.nodes)

    def _build(self) -> None:
        layout = self._layout
        start = LAKES[layout.lake]
        self.lake: Lake = self._stack.enter_context(start(self._folder / "lake"))
        self.tier: Lake = self._stack.enter_context(start(self._folder / "tier"))
        addresses = ["127.0.0.1"] * layout.members
        self.etcd = self._stack.enter_context(Etcd(self._folder / "etcd", addresses, layout.quota_bytes))
        self._stack.enter_context(self.proxy)
        tier.prepare(self.tier)
        await_that("the lake has a bucket", lambda: self.put_at_lake().status == 200)
        peers = {number: free_port() for number in range(1, layout.nodes + 1)}
        self.nodes = {number: self._node(number, peers) for number in peers}
        self.on_nodes(self.nodes, lambda number: self.nodes[number].start())
        await_that("all nodes write back", self.all_write_back, 30)

    def _node(self, number: int, peers: Mapping[int, int]) -> Node:
        layout = self._layout
        registry = ",".join(self.proxy.door(number, "registry", url) for url in self.etcd.urls)
        store = self.proxy.door(number, "tier", self.tier.url)
        place = tier.Place(store, self.tier.account, registry)
        tables = tier.tables(place, layout.age, [f"s3://{BUCKET}/{BACK}"], capacity=layout.capacity)
        others = ", ".join(f'"127.0.0.1:{port}"' for other, port in peers.items() if other != number)
        tables += COOPERATION.format(
            address=f"127.0.0.1:{peers[number]}", seeds=others, weight=100, period="90s", split='"adaptive"'
        )
        return Node(
            self._binary,
            self._folder / f"node-{number}",
            self.proxy.door(number, "lake", self.lake.url),
            [self.account],
            capacity="64MiB",
            block_size="256KiB",
            name=f"node-{number}",
            topology=f"dc1/cluster-a/rack-{number}",
            tables=tables,
            environment={"SHOAL_LAKE_STALL_TIMEOUT": f"{layout.stall_s:g}s", **layout.environment.get(number, {})},
        )
