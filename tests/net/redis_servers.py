"""Servers of Redis on loopback that can die, freeze, become slow or full, forget, and be cut off from each other."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from real.processes import Process, answers, await_that, free_port

from .stories import CannotBeTold

_ANSWERED_S = 20.0
_SLOTS = 16_384
_MASTERS = 3
# A master that is not heard for so long is replaced.
_CLUSTER_TIMEOUT_MS = 2_000
# A slow server lets requests wait for most of the time.
_PAUSED_MS, _PAUSED_EACH_S = 400, 0.5
# A Sentinel asks others whether they reach a master that it has not reached for so long.
_WATCHED, _SENTINELS, _QUORUM = "main", 3, 2
_REPLICAS = 2
_DOWN_AFTER_MS, _FAILOVER_TIMEOUT_MS = 1_000, 3_000
_CUT = """\
table ip {name} {{
  chain between {{
    type filter hook output priority 0; policy accept
    ip saddr {{ {some} }} ip daddr {{ {others} }} drop
    ip saddr {{ {others} }} ip daddr {{ {some} }} drop
  }}
}}
"""

Reply = bytes | int | list["Reply"] | None
# A node holds a block: the key of the block's group, the index of the block, and the node.
Entry = tuple[bytes, bytes, bytes]


class RedisError(OSError):
    """An answer of Redis that says why a command failed. A wait asks again, as it does when no answer comes."""


class Server:
    """One Redis, at an address of its own so that it can be cut off."""

    def __init__(self, folder: Path, address: str, settings: Sequence[str] = ()) -> None:
        self.address, self.port = address, free_port()
        self._folder, self._settings = folder, settings
        self._process: Process | None = None

    def start(self) -> None:
        """Starts the server without entries, and waits until it answers."""
        self._folder.mkdir(parents=True, exist_ok=True)
        command = [
            *("redis-server", *self._begins_with(), "--port", str(self.port), "--dir", str(self._folder)),
            # Only 127.0.0.1 is beyond suspicion in the protected mode.
            *("--bind", self.address, "--bind-source-addr", self.address, "--protected-mode", "no"),
            *self._settings,
        ]
        self._process = Process(command, self._folder / "redis.log")
        self._process.wait_until(lambda: answers(self.port, self.address), 30)

    def _begins_with(self) -> Sequence[str]:
        return ("--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0")

    def stop(self) -> None:
        """Stops the server, even a frozen one."""
        if self._process is not None:
            self.thaw()
            self._process.stop()

    def kill(self) -> None:
        """Ends the server as `kill -9` does."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.stop()

    def freeze(self) -> None:
        """Stops the process with SIGSTOP."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Lets a frozen process go on."""
        self._signal(signal.SIGCONT)

    def ask(self, *words: str | bytes) -> Reply:
        """Returns the answer to one command."""
        return self.ask_all([words])[0]

    def ask_all(self, commands: Sequence[Sequence[str | bytes]]) -> list[Reply]:
        """Returns the answers to some commands, which are sent together."""
        with (
            socket.create_connection((self.address, self.port), _ANSWERED_S) as connection,
            connection.makefile("rb") as stream,
        ):
            connection.sendall(b"".join(map(_encoded, commands)))
            return [_decoded(stream) for _ in commands]

    def flush(self) -> None:
        """Removes every entry."""
        self.ask("FLUSHALL")

    def fill(self) -> None:
        """Leaves the server without room."""
        self.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
        self.ask("CONFIG", "SET", "maxmemory", "1mb")

    def make_room(self) -> None:
        """Lets the server take entries again."""
        self.ask("CONFIG", "SET", "maxmemory", "0")

    def slow_down(self) -> Callable[[], None]:
        """Lets most requests wait. Returns the function that ends this."""
        over = threading.Event()

        def pause() -> None:
            while not over.wait(_PAUSED_EACH_S):
                self.ask("CLIENT", "PAUSE", str(_PAUSED_MS), "ALL")

        thread = threading.Thread(target=pause)
        thread.start()

        def end() -> None:
            over.set()
            thread.join()

        return end

    def is_master(self) -> bool:
        """Returns whether the server is a master, as far as it knows."""
        role = self.ask("ROLE")
        return isinstance(role, list) and role[0] == b"master"

    def offset(self, name: str = "master_repl_offset") -> int:
        """Returns how many bytes of changes the server has, or had when it was promoted (`second_repl_offset`)."""
        lines = bytes(self.ask("INFO", "replication") or b"").decode().split("\r\n")  # type: ignore[arg-type]
        return int(next(line for line in lines if line.startswith(f"{name}:")).partition(":")[2])

    def entries(self) -> Iterator[Entry]:
        """Yields each block and node that the server knows."""
        keys = [key for key in _list(self.ask("KEYS", "shoal:b:*")) if isinstance(key, bytes)]
        for key, fields in zip(keys, self.ask_all([("HGETALL", key) for key in keys]) if keys else [], strict=True):
            values = iter(_list(fields))
            for name, value in zip(values, values, strict=True):
                if isinstance(name, bytes) and isinstance(value, bytes) and name.startswith(b"h"):
                    yield from ((key, name[1:], value[at : at + 8]) for at in range(0, len(value), 8))

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            # It may have been killed.
            try:
                os.kill(self._process.pid, number)
            except ProcessLookupError:
                return


class Sentinel(Server):
    """A Sentinel that watches a master. It keeps what it learns in its configuration file."""

    def __init__(self, folder: Path, address: str, master: Server) -> None:
        super().__init__(folder, address)
        self._master = master

    def _begins_with(self) -> Sequence[str]:
        file = self._folder / "sentinel.conf"
        if not file.exists():
            watched = f"sentinel monitor {_WATCHED} {self._master.address} {self._master.port} {_QUORUM}"
            times = (
                f"sentinel down-after-milliseconds {_WATCHED} {_DOWN_AFTER_MS}",
                f"sentinel failover-timeout {_WATCHED} {_FAILOVER_TIMEOUT_MS}",
            )
            file.write_text("\n".join([watched, *times, ""]))
        return (str(file), "--sentinel")


class Redis(ABC):
    """A directory. It runs from `with` to the end of that."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.servers: list[Server] = []

    def __enter__(self) -> Redis:
        if shutil.which("redis-server") is None:
            raise CannotBeTold("redis-server is not installed (Debian: redis-server)")
        try:
            for server in self.servers:
                self._stack.callback(server.stop)
                server.start()
            self._build()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    @abstractmethod
    def url(self) -> str:
        """Returns the URL, as a node's configuration takes it."""

    @abstractmethod
    def _build(self) -> None:
        """Makes one directory of servers that have just started."""

    @contextmanager
    def cut(
        self, some: Sequence[Server], others: Sequence[Server] | None = None, *, also_from_nodes: bool = False
    ) -> Iterator[None]:
        """Drops everything between some servers and others, by default all others; no sender hears of it."""
        others = [server for server in self.servers if server not in some] if others is None else others
        name = f"redis{self.servers[0].port}"
        table = _CUT.format(
            name=name,
            some=", ".join(server.address for server in some),
            others=", ".join([*(server.address for server in others), *(["127.0.0.1"] if also_from_nodes else [])]),
        )
        subprocess.run(["nft", "-f", "-"], input=table, text=True, check=True, capture_output=True)
        try:
            yield
        finally:
            subprocess.run(["nft", "delete", "table", "ip", name], check=True, capture_output=True)

    def entries(self) -> set[Entry]:
        """Returns each block and node that some master knows."""
        return {entry for server in self.servers if server.is_master() for entry in server.entries()}


class SingleRedis(Redis):
    """One server."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.servers = [Server(folder, "127.0.0.1")]

    @property
    def url(self) -> str:
        """Returns the URL, as a node's configuration takes it."""
        return f"redis://127.0.0.1:{self.servers[0].port}"

    def _build(self) -> None:
        pass


class SentinelRedis(Redis):
    """A master and two replicas that Sentinels watch. A server refuses writes ten seconds after it has no replica."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        network = _network()
        settings = ("--min-replicas-to-write", "1", "--min-replicas-max-lag", "10")
        first = Server(folder / "0", f"{network}.1", settings)
        follows = ("--replicaof", f"{first.address} {first.port}")
        replicas = [
            Server(folder / str(number), f"{network}.{number + 1}", (*settings, *follows))
            for number in range(1, 1 + _REPLICAS)
        ]
        self._data = [first, *replicas]
        self._sentinels = [
            Sentinel(folder / f"sentinel-{number}", f"{network}.{number + 101}", first) for number in range(_SENTINELS)
        ]
        self.servers = [*self._data, *self._sentinels]

    @property
    def url(self) -> str:
        """Returns the URL, as a node's configuration takes it."""
        return f"redis-sentinel://{','.join(f'{each.address}:{each.port}' for each in self._sentinels)}/{_WATCHED}"

    def master(self) -> Server:
        """Returns the master, by the word of each server."""
        return next(server for server in self._data if server.is_master())

    def replicas(self) -> list[Server]:
        """Returns the servers that follow the master."""
        return [server for server in self._data if not server.is_master()]

    def is_whole(self) -> bool:
        """Returns whether all servers follow one, and every Sentinel knows all others and which is the master."""
        links = [bytes(server.ask("INFO", "replication") or b"") for server in self._data]  # type: ignore[arg-type]
        follow = sum(b"master_link_status:up" in link for link in links) == _REPLICAS
        leads = sum(b"role:master" in link and b"connected_slaves:%d" % _REPLICAS in link for link in links) == 1
        return follow and leads and all(self._knows_all(sentinel) for sentinel in self._sentinels)

    def _knows_all(self, sentinel: Server) -> bool:
        words = iter(_list(sentinel.ask("SENTINEL", "MASTER", _WATCHED)))
        known = dict(zip(words, words, strict=True))
        others = str(_SENTINELS - 1).encode()
        has_all = known[b"num-other-sentinels"] == others and known[b"num-slaves"] == str(_REPLICAS).encode()
        return has_all and known[b"flags"] == b"master" and int(bytes(known[b"port"])) == self.master().port  # type: ignore[arg-type]

    def _build(self) -> None:
        await_that("the Sentinels know each other and both servers", self.is_whole, 30)


class RedisCluster(Redis):
    """Three masters with a replica each."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._buses = [free_port() for _ in range(2 * _MASTERS)]
        network = _network()
        self.servers = [
            Server(folder / str(number), f"{network}.{number + 1}", _cluster_settings(bus))
            for number, bus in enumerate(self._buses)
        ]

    @property
    def url(self) -> str:
        """Returns the URL, as a node's configuration takes it."""
        return "redis-cluster://" + ",".join(f"{server.address}:{server.port}" for server in self.servers)

    def masters(self) -> list[Server]:
        """Returns the masters, by the word of each."""
        return [server for server in self.servers if server.is_master()]

    def replica_of(self, master: Server) -> Server:
        """Returns the replica of a master."""
        role = _list(master.ask("ROLE"))
        ports = [int(bytes(replica[1])) for replica in _list(role[2]) if isinstance(replica, list)]  # type: ignore[arg-type]
        return next(server for server in self.servers if server.port in ports)

    def is_whole(self) -> bool:
        """Returns whether all slots have a master with a replica that has all of its entries."""
        states = [bytes(server.ask("CLUSTER", "INFO") or b"") for server in self.servers]  # type: ignore[arg-type]
        links = [bytes(server.ask("INFO", "replication") or b"") for server in self.servers]  # type: ignore[arg-type]
        return (
            all(b"cluster_state:ok" in state and b"cluster_slots_fail:0" in state for state in states)
            and sum(b"role:master" in link and b"connected_slaves:1" in link for link in links) == _MASTERS
            and sum(b"master_link_status:up" in link for link in links) == _MASTERS
        )

    def _build(self) -> None:
        first, *rest = self.servers
        for epoch, server in enumerate(self.servers, 1):
            server.ask("CLUSTER", "SET-CONFIG-EPOCH", str(epoch))
        for server, bus in zip(rest, self._buses[1:], strict=True):
            first.ask("CLUSTER", "MEET", server.address, str(server.port), str(bus))
        for number, master in enumerate(self.servers[:_MASTERS]):
            begin, end = (_SLOTS * at // _MASTERS for at in (number, number + 1))
            master.ask("CLUSTER", "ADDSLOTSRANGE", str(begin), str(end - 1))
        await_that("the servers know each other", lambda: all(_known(server) == 6 for server in self.servers), 30)
        for master, replica in zip(self.servers[:_MASTERS], self.servers[_MASTERS:], strict=True):
            name = master.ask("CLUSTER", "MYID")
            if isinstance(name, bytes):
                await_that("a replica follows", lambda: _follows(replica, name), 30)  # noqa: B023
        await_that("the cluster is whole", self.is_whole, 30)


def _network() -> str:
    """Returns the beginning of addresses: another story may cut off its own servers, which it names by theirs."""
    return f"127.{random.randrange(1, 255)}.{random.randrange(255)}"


def _cluster_settings(bus: int) -> list[str]:
    return [
        *("--cluster-enabled", "yes", "--cluster-config-file", "nodes", "--cluster-port", str(bus)),
        *("--cluster-node-timeout", str(_CLUSTER_TIMEOUT_MS), "--cluster-require-full-coverage", "no"),
        # A replica takes over, however long it was frozen.
        *("--cluster-replica-validity-factor", "0"),
    ]


def _known(server: Server) -> int:
    return bytes(server.ask("CLUSTER", "NODES") or b"").count(b"connected")  # type: ignore[arg-type]


def _follows(replica: Server, master: bytes) -> bool:
    try:
        replica.ask("CLUSTER", "REPLICATE", master)
    except RedisError:
        # It has not heard of this master.
        return False
    return True


def _list(reply: Reply) -> list[Reply]:
    if not isinstance(reply, list):
        raise RedisError(f"not a list: {reply!r}")
    return reply


def _encoded(words: Sequence[str | bytes]) -> bytes:
    raw = [word.encode() if isinstance(word, str) else word for word in words]
    return b"".join([b"*%d\r\n" % len(raw), *(b"$%d\r\n%b\r\n" % (len(word), word) for word in raw)])


def _decoded(stream: BinaryIO) -> Reply:
    line = stream.readline()
    if not line.endswith(b"\r\n"):
        raise ConnectionError("Redis has ended the connection")
    kind, rest = line[:1], line[1:-2]
    if kind == b"-":
        raise RedisError(rest.decode())
    if kind == b":":
        return int(rest)
    if kind == b"$":
        return None if rest == b"-1" else stream.read(int(rest) + 2)[:-2]
    if kind == b"*":
        return [_decoded(stream) for _ in range(int(rest))]
    return rest
