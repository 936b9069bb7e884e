"""A lake, a node in each rack in front of it, and clients in each rack."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from real import etcd, tier
from real.lakes import Lake, minio, versitygw
from real.node import Node
from real.processes import Process, answers, await_that, run
from real.wire import Answer, send

from .fabric import (
    DIRECTORY_ADDRESS,
    LAKE_ADDRESS,
    REGISTRY_ADDRESSES,
    TIER_ADDRESS,
    Fabric,
    Rates,
    admin_address,
    node_address,
    within,
)
from .objects import Read, contents
from .reader import Outcome, Plan
from .writer import Writes

BUCKET = "shoal"
# Names that begin so are written back, where there is a tier.
BACK = "back/"
# A node waits twice as long before it repeats a request to the lake that a dead node may have sent.
_SOON_ADOPTED = {"SHOAL_LAKE_ANSWER_TIMEOUT": "5s"}
_REDIS_PORT = 6379
_PEER_PORT, _DELAYED_PEER_PORT, _DELAYED_LAKE_PORT = 9200, 9201, 9999
LAKES = {"versitygw": versitygw.start, "minio": minio.start}

COOPERATION = """
[cooperation]
mode = "hierarchy"
listen = "{listen}"
advertise = "{address}"
seeds = [{seeds}]
layers = ["rack", "cluster"]
weight = {weight}
period = "{period}"
split = {split}
secret_key = "what the nodes of this cluster share"
"""


@dataclass(frozen=True)
class Shape:
    """The parts of a cluster, and their settings. `weights` are those of the nodes; without them all are equal."""

    racks: int
    rates: Rates
    capacity: str = "2GiB"
    block_size: str = "1MiB"
    freshness: str = "revalidate"
    weights: Sequence[int] = ()
    """Percents of a node's room, from L1 outwards; without them each node adapts them once a period."""
    split: Sequence[int] = ()
    period: str = "90s"
    """Racks whose node knows of no other."""
    solo: Sequence[int] = ()
    lake: str = "versitygw"
    """How long a write stays in a tier that all nodes share; if empty, there is no tier."""
    written_back: str = ""
    """How long a node remembers the lake's permission to write below the rule."""
    permission: str = "0s"
    """Further tables of each node's configuration."""
    tables: str = ""
    """The rack whose store has a disk of its own, and its size in bytes."""
    disk: tuple[int, int] | None = None
    """Whether nodes find blocks by a directory, and not at their homes."""
    directory: bool = False
    """The eviction policy; if empty, the default of the nodes."""
    policy: str = ""
    """Milliseconds that a request and its answer take longer between two nodes, and between a node and the lake."""
    peer_delay_ms: float = 0
    lake_delay_ms: float = 0
    """Blocks that a node fetches ahead of one reader; 0 for the default."""
    read_ahead: int = 0
    """The bandwidth that the links of all nodes to the lake have together, if nodes are to meter them."""
    metered_mbit: int = 0

    @property
    def settings(self) -> dict[str, str]:
        """Returns the variables of each node's environment."""
        settings = dict(_SOON_ADOPTED) if self.written_back else {}
        if self.policy:
            settings["SHOAL_STORE_POLICY"] = self.policy
        if self.read_ahead:
            settings["SHOAL_LIMITS_READ_AHEAD_BLOCKS"] = str(self.read_ahead)
        if self.metered_mbit:
            settings["SHOAL_LAKE_BANDWIDTH"] = f"{self.metered_mbit}Mbit shared"
        if self.directory:
            settings["SHOAL_COOPERATION_MODE"] = "directory"
            settings["SHOAL_DIRECTORY_URL"] = f"redis://{DIRECTORY_ADDRESS}:{_REDIS_PORT}"
            # Answers wait behind blocks, which take as many times longer as links are slower than published.
            settings["SHOAL_DIRECTORY_TIMEOUT"] = "1s"
        return settings


class Cluster:
    """A fabric with processes in it; numbers of nodes and of clients are those of their racks."""

    def __init__(self, binary: Path, folder: Path, shape: Shape) -> None:
        if shape.written_back:
            # Raises if etcd is missing, before there is anything to take down.
            etcd.program()
        self._binary, self._solo = binary, shape.solo
        self._stack = ExitStack()
        self.fabric = Fabric(shape.racks, shape.rates)
        self._stack.callback(self.fabric.remove)
        self.lake: Lake = self._stack.enter_context(LAKES[shape.lake](folder / "lake", (), LAKE_ADDRESS))
        if shape.directory:
            self._directory(folder)
        self._lake_url = self._delayed_lake(folder, shape) if shape.lake_delay_ms else self.lake.url
        self._tier_tables = self._tier(folder, shape) if shape.written_back else ""
        self.nodes = {rack: self._node(binary, folder, shape, rack) for rack in self.fabric.racks}
        if shape.disk:
            self._mount(*shape.disk)
        # A lake that has just begun says for a moment that it is not ready.
        await_that("the lake has a bucket", lambda: self._put_at_lake().status == 200)

    def __enter__(self) -> Cluster:
        try:
            with ThreadPoolExecutor(len(self.nodes)) as pool:
                list(pool.map(Node.start, self.nodes.values()))
            self.await_members()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes.values():
            node.stop()
        self._stack.close()

    def put(self, key: str, size: int) -> None:
        """Writes an object to the lake, past all links."""
        answer = self._put_at_lake(key, contents(key, size))
        if answer.status != 200:
            raise RuntimeError(f"the lake answered {answer.status} to a PUT of {key}")

    def restart_cold(self) -> None:
        """Starts all nodes again, with empty stores."""
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            list(pool.map(Node.restart_cold, self.nodes.values()))
        self.await_members()

    def layers(self, rack: int) -> list[dict[str, int]]:
        """Returns the room and the contents of each layer of a rack's node, from L1 outwards, as in `/status`."""
        layers: list[dict[str, int]] = json.loads(self.nodes[rack].ask("/status"))["layers"]
        return layers

    def members(self, rack: int) -> set[str]:
        """Returns the names of the nodes that a rack's node believes alive."""
        page = json.loads(self.nodes[rack].ask("/members"))
        return {member["name"] for member in page["members"]}

    def await_members(self) -> None:
        """Waits until every node knows every other."""
        together = [rack for rack in self.nodes if rack not in self._solo]
        names = {self.nodes[rack].name for rack in together}
        await_that("all nodes know each other", lambda: all(self.members(rack) == names for rack in together))

    def signal(self, rack: int, number: signal.Signals) -> None:
        """Sends a signal to a rack's node."""
        os.kill(self.nodes[rack].pid, number)

    def read_through(self, rack: int, reads: Sequence[Read], **settings: object) -> Outcome:
        """Runs reads of a rack's clients from its node, and returns their outcome."""
        return self.read_all({rack: self.plan([rack], reads, **settings)})[rack]

    def read_past(self, rack: int, reads: Sequence[Read], **settings: object) -> Outcome:
        """Runs the same reads straight from the lake, over the same links."""
        return self.read_all({rack: replace(self.plan([rack], reads, **settings), endpoints=[self.lake.url])})[rack]

    def read_all(self, plans: dict[int, Plan]) -> dict[int, Outcome]:
        """Runs a plan in each of these racks, all at once, to their ends."""
        clients = {rack: Client(rack, plan) for rack, plan in plans.items()}
        for client in clients.values():
            client.go()
        return {rack: client.outcome() for rack, client in clients.items()}

    def write(self, rack: int, keys: Sequence[str], size: int, mode: str | None) -> float:
        """Writes objects from a rack through its node, or to the lake without a mode; returns the seconds."""
        url, headers = (self.nodes[rack].url, {"x-shoal-write": mode}) if mode else (self.lake.url, {})
        account = self.lake.account
        writes = Writes(url, account.access_key, account.secret_key, BUCKET, keys, size, headers)
        command = [*within(f"client-{rack}"), sys.executable, "-m", "net.writer"]
        done = subprocess.run(command, input=writes.to_json(), capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return float(done.stdout)

    def flush(self) -> None:
        """Brings everything that was written back to the lake."""
        node = self.nodes[1]
        run([self._binary, "flush", "--node", node.admin, *node.shown])

    def plan(self, racks: Sequence[int], reads: Sequence[Read], **settings: object) -> Plan:
        """Returns a plan of reads from the nodes of these racks, the first one first."""
        account = self.lake.account
        urls = [self.nodes[rack].url for rack in racks]
        return Plan(urls, account.access_key, account.secret_key, BUCKET, reads, **settings)  # type: ignore[arg-type]

    def _directory(self, folder: Path) -> None:
        """Starts the Redis that has the directory."""
        command = ["redis-server", "--bind", DIRECTORY_ADDRESS, "--port", str(_REDIS_PORT), "--protected-mode", "no"]
        redis = Process([*command, "--save", "", "--dir", str(folder)], folder / "redis.log")
        self._stack.callback(redis.stop)
        redis.wait_until(lambda: answers(_REDIS_PORT, DIRECTORY_ADDRESS), 10)

    def _tier(self, folder: Path, shape: Shape) -> str:
        """Starts a tier; returns the tables of a node's configuration for it."""
        registry = self._stack.enter_context(etcd.Etcd(folder / "etcd", REGISTRY_ADDRESSES))
        store = self._stack.enter_context(LAKES[shape.lake](folder / "tier", (), TIER_ADDRESS))
        tier.prepare(store)
        return tier.tables(
            tier.Place.of(store, registry),
            shape.written_back,
            [f"s3://{BUCKET}/{BACK}"],
            permission=shape.permission,
        )

    def _delayed_lake(self, folder: Path, shape: Shape) -> str:
        """Puts a slow wire before the lake; returns the URL of its near end."""
        address = self.lake.url.rsplit("/", 1)[1]
        near = f"{LAKE_ADDRESS}:{_DELAYED_LAKE_PORT}"
        wire = self._delay(folder / "lake-wire.log", near, address, shape.lake_delay_ms, ())
        wire.wait_until(lambda: answers(_DELAYED_LAKE_PORT, LAKE_ADDRESS), 10)
        return f"http://{near}"

    def _delay(self, log: Path, near: str, far: str, delay_ms: float, where: Sequence[str]) -> Process:
        command = [*where, sys.executable, "-m", "net.delay", near, far, str(delay_ms)]
        wire = Process(command, log)
        self._stack.callback(wire.stop)
        return wire

    def _put_at_lake(self, key: str = "", body: bytes = b"") -> Answer:
        return send(self.lake.url, self.lake.account, "PUT", BUCKET, key, body=body)

    def _mount(self, rack: int, size: int) -> None:
        disk = self.nodes[rack].store
        disk.mkdir(parents=True)
        run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", disk])
        self._stack.callback(run, ["umount", disk])

    def filler(self, rack: int) -> Path:
        """Returns a file on the disk of a rack's store that is not the node's."""
        return self.nodes[rack].store / "filler"

    def _node(self, binary: Path, folder: Path, shape: Shape, rack: int) -> Node:
        tables = ""
        if rack not in shape.solo:
            port = _DELAYED_PEER_PORT if shape.peer_delay_ms else _PEER_PORT
            seeds = ", ".join(f'"{node_address(other)}:{port}"' for other in self.fabric.racks if other != rack)
            listen, address = f"{node_address(rack)}:{_PEER_PORT}", f"{node_address(rack)}:{port}"
            if shape.peer_delay_ms:
                log = folder / f"peer-wire-{rack}.log"
                self._delay(log, address, listen, shape.peer_delay_ms, within(f"node-{rack}"))
            tables = COOPERATION.format(
                listen=listen,
                address=address,
                seeds=seeds,
                weight=shape.weights[rack - 1] if shape.weights else 100,
                period=shape.period,
                split=json.dumps(list(shape.split) or "adaptive"),
            )
        tables += self._tier_tables + shape.tables
        return Node(
            binary,
            folder / f"node-{rack}",
            self._lake_url,
            [self.lake.account],
            freshness=shape.freshness,
            capacity=shape.capacity,
            block_size=shape.block_size,
            name=f"node-{rack}",
            topology=f"dc1/cluster-a/rack-{rack}",
            address=node_address(rack),
            admin_address=admin_address(rack),
            tables=tables,
            environment=shape.settings,
            within=within(f"node-{rack}"),
            s3_port=9000,
            admin_port=9100,
        )


class Remote:
    """A process in a rack, or here, that gets a plan, starts at a command, and reports in one line how it went."""

    def __init__(self, rack: int | None, module: str, plan: str) -> None:
        self._child = subprocess.Popen(
            [*(within(f"client-{rack}") if rack else ()), sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._tell(plan)
        if self._line() != "ready":
            raise RuntimeError(f"the client of rack {rack} did not understand its plan")

    def go(self) -> None:
        """Starts the work."""
        self._tell("go")

    def end(self) -> None:
        """Ends the plan: the process begins no more requests, and writes its last line when the open ones are done."""
        self._tell("end")

    def last_line(self) -> str:
        """Waits for the end of the process, and returns its last line."""
        line = self._line()
        self._child.wait()
        return line

    def _tell(self, line: str) -> None:
        if self._child.stdin is None:
            raise RuntimeError("a client without stdin")
        self._child.stdin.write(line + "\n")
        self._child.stdin.flush()

    def _line(self) -> str:
        if self._child.stdout is None:
            raise RuntimeError("a client without stdout")
        return self._child.stdout.readline().strip()


class Client(Remote):
    """A reader that waits in its rack until it is told to go."""

    def __init__(self, rack: int, plan: Plan) -> None:
        super().__init__(rack, "net.reader", plan.to_json())

    def stop(self) -> Outcome:
        """Ends a plan without an end."""
        self.end()
        return self.outcome()

    def outcome(self) -> Outcome:
        """Waits for the reads, and returns their outcome."""
        return Outcome.from_json(self.last_line())
