"""Nodes on loopback with a tier and a registry, which are behind the proxy as the lake is."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

from real import tier
from real.etcd import Etcd
from real.lakes import Lake
from real.node import Node
from real.processes import await_that, free_port
from real.wire import send

from . import maps
from .cluster import BACK, BUCKET, COOPERATION, LAKES
from .hand import listing
from .loopback import LoopbackCluster
from .request_names import FOLDER
from .stories import Broken

# FENCE is twice as long.
_STALL_S = 1
# Larger objects go to the lake under their own names, also those whose names have packed ones.
PACK_BELOW = "64KiB"
# Entries, dirty objects, changes on their way, empty entries, bytes that are no longer needed: see `keys.rs`.
_WORK = "dqsbet"
# The folder of tables, in that of packs.
_TABLES = "map/"


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
    """Whether small objects go to the lake in packs."""
    is_packed: bool = False
    """Whether the tier's store has receipts, from which a lost registry is recovered."""
    has_receipts: bool = False
    """Variables of a node, by its number, beside those of all."""
    environment: Mapping[int, Mapping[str, str]] = field(default_factory=dict)


class ProxiedCluster(LoopbackCluster):
    """The cluster runs from the beginning of `with` to its end."""

    def __init__(self, binary: Path, folder: Path, lake: str, layout: Layout) -> None:
        super().__init__(binary, folder, lake)
        self._layout = layout

    @property
    def fence_s(self) -> float:
        """Returns the seconds after which a request without a waiting sender has no effect any more."""
        return 2 * self._layout.stall_s

    def await_silence(self, node: int) -> None:
        """Waits until no request of a dead node is under way."""
        await_that(f"nothing of node {node} is under way", lambda: self.proxy.is_silent(node), 30)

    def end_session(self, node: int) -> None:
        """Ends the session of a node that is dead, as the registry would do some seconds later."""
        key = base64.b64encode(f"shoal/near/n/{self.proxy.node_ids[node]}".encode()).decode()
        held = self.etcd.ask("kv/range", {"key": key}).get("kvs", [])
        for entry in held if isinstance(held, list) else ():
            self.etcd.ask("lease/revoke", {"ID": entry["lease"]})

    def start_again(self, node: int) -> None:
        """Starts a killed node again. It takes its own session over, so it takes writes back at once."""
        self.nodes[node].stop()
        self.nodes[node].start()

    def write_back(self, node: int) -> dict[str, object]:
        """Returns the part of a node's `/status` about its tier."""
        page: dict[str, object] = json.loads(self.nodes[node].ask("/status"))["write_back"]
        return page

    def clock(self, node: int) -> float:
        """Returns the time of day by a node's clock, from the first line of its log."""
        return datetime.fromisoformat(self.nodes[node].log.read_text().split(maxsplit=1)[0]).timestamp()

    def flush(self, node: int, prefix: str = BACK) -> None:
        """Asks a node to bring dirty objects below a prefix to the lake, and does not wait for that."""
        below = quote(f"s3://{BUCKET}/{prefix}", safe="")
        order = self.nodes[node].request(f"/flush?below={below}", "POST")
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

    def recover(self) -> str:
        """Recovers a lost registry, as an operator does, and returns what the command says."""
        node = self.nodes[1]
        command = [str(self.binary), "tier", "recover", "near", "--config", str(node.configuration)]
        done = subprocess.run(
            command, env={**os.environ, **node.environment}, capture_output=True, text=True, timeout=300, check=False
        )
        if done.returncode:
            raise Broken(f"the tier is not recovered: {done.stderr}")
        return done.stdout.splitlines()[0]

    def forget(self) -> None:
        """Removes all that the registry has, as if its disks were lost."""
        first = base64.b64encode(b"\0").decode()
        self.etcd.ask("kv/deleterange", {"key": first, "range_end": first})

    def receipts(self) -> list[str]:
        """Returns the keys of the receipts in the tier's store."""
        query = {"list-type": "2", "prefix": "pieces/receipt-"}
        answer = send(self.tier.url, self.tier.account, "GET", tier.BUCKET, query=query)
        return sorted(listing(answer.body))

    def sizes_at_lake(self) -> dict[str, int]:
        """Returns the bytes of each object of the lake, packs and tables among them."""
        sizes: dict[str, int] = {}
        while True:
            query = {"list-type": "2", **({"start-after": max(sizes)} if sizes else {})}
            answer = send(self.lake.url, self.account, "GET", BUCKET, query=query)
            sizes |= {key: int(value.split()[1]) for key, value in listing(answer.body).items()}
            if b"<IsTruncated>true<" not in answer.body:
                return sizes

    def packs(self) -> dict[str, int]:
        """Returns the bytes of each pack of the lake, by its id."""
        sizes = self.sizes_at_lake()
        return {Path(key).stem: size for key, size in sizes.items() if FOLDER in key and key.endswith(".zip")}

    def tables(self) -> list[int]:
        """Returns the numbers of the tables of the lake, ascending."""
        return sorted(int(Path(key).name) for key in self.sizes_at_lake() if f"{FOLDER}{_TABLES}" in key)

    def map_at_lake(self) -> maps.Map:
        """Returns the map of packs as the tables of the lake say, read without Shoal."""
        numbers = self.tables()
        if not numbers:
            return maps.Map([], {})
        return maps.read(numbers[-1], lambda number: self._read(f"{BACK}{FOLDER}{_TABLES}{number:020}"))

    def pack(self, pack: str) -> bytes:
        """Returns the bytes of a pack."""
        return self._read(f"{BACK}{FOLDER}{pack}.zip")

    def keeper(self) -> int | None:
        """Returns the node that keeps the map of packs, if one does."""
        of_map, of_nodes = (self._leases(f"shoal/near/{letter}/") for letter in "kn")
        ids = [node.rsplit("/", 1)[1] for node, lease in of_nodes.items() if lease in of_map.values()]
        return next((node for node, own in self.proxy.node_ids.items() if own in ids), None)

    def all_write_back(self, size: int = 0) -> bool:
        """Returns whether each node acknowledges a write of so many bytes before the lake has it."""
        hand = self.hand()
        for number in self.nodes:
            hand.put(f"{BACK}warm-{number}", f"warm-{size}", number)
        return sum(operation.note == "back" for operation in hand.history.operations) == len(self.nodes)

    def _read(self, key: str) -> bytes:
        answer = send(self.lake.url, self.account, "GET", BUCKET, key)
        if answer.status != 200:
            raise RuntimeError(f"the lake answered {answer.status} to a GET of {key}")
        return answer.body

    def _leases(self, prefix: str) -> dict[str, object]:
        """Returns the sessions of the keys of the registry that begin with a prefix, which ends with a slash."""
        first, end = (base64.b64encode(key.encode()).decode() for key in (prefix, f"{prefix[:-1]}0"))
        found = self.etcd.ask("kv/range", {"key": first, "range_end": end}).get("kvs", [])
        listed = found if isinstance(found, list) else []
        return {base64.b64decode(each["key"]).decode(): each.get("lease") for each in listed}

    def _build(self) -> None:
        layout = self._layout
        self.tier: Lake = self._stack.enter_context(LAKES[self._lake](self._folder / "tier"))
        addresses = ["127.0.0.1"] * layout.members
        self.etcd = self._stack.enter_context(Etcd(self._folder / "etcd", addresses, layout.quota_bytes))
        tier.prepare(self.tier)
        peers = {number: free_port() for number in range(1, layout.nodes + 1)}
        self.nodes = {number: self._node(number, peers) for number in peers}
        self.on_nodes(self.nodes, lambda number: self.nodes[number].start())
        await_that("all nodes write back", self.all_write_back, 30)

    def _node(self, number: int, peers: Mapping[int, int]) -> Node:
        layout = self._layout
        registry = ",".join(self.proxy.door(number, "registry", url) for url in self.etcd.urls)
        store = self.proxy.door(number, "tier", self.tier.url)
        place = tier.Place(store, self.tier.account, registry)
        prefixes, quota = [f"s3://{BUCKET}/{BACK}"], layout.quota_bytes
        packing = {"keeper": self.account.access_key, "pack_below": PACK_BELOW} if layout.is_packed else {}
        packing |= {"has_receipts": layout.has_receipts}
        tables = tier.tables(place, layout.age, prefixes, capacity=layout.capacity, quota_bytes=quota, **packing)
        others = ", ".join(f'"127.0.0.1:{port}"' for other, port in peers.items() if other != number)
        own = f"127.0.0.1:{peers[number]}"
        tables += COOPERATION.format(
            listen=own, address=own, seeds=others, weight=100, period="90s", split='"adaptive"'
        )
        return Node(
            self.binary,
            self._folder / f"node-{number}",
            self.proxy.door(number, "lake", self.lake.url),
            [self.account],
            capacity="64MiB",
            block_size="256KiB",
            name=f"node-{number}",
            topology=f"dc1/cluster-a/rack-{number}",
            tables=tables,
            environment={"SHOAL_LAKE_ANSWER_TIMEOUT": f"{layout.stall_s:g}s", **layout.environment.get(number, {})},
        )
