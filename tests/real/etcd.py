"""An etcd for the registry of a tier: plain HTTP, so for loopback and networks of a test only."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import cast

from .processes import Process, await_that, free_port


class EtcdUnavailable(RuntimeError):
    """No etcd on this machine; the message says so, for the line that reports the skip."""


def program() -> str:
    """Returns the path of etcd."""
    found = shutil.which("etcd")
    if found is None:
        raise EtcdUnavailable("etcd is not installed (Debian: etcd-server)")
    return found


class Etcd:
    """Members at these addresses, one each, with a quota of bytes. It runs from `with` to the end of that."""

    def __init__(self, folder: Path, addresses: Sequence[str] = ("127.0.0.1",), quota_bytes: int = 0) -> None:
        self._program = program()
        self._quota_bytes = quota_bytes
        self._folder = folder
        # Addresses that are the same leave only the ports to tell members apart.
        self._clients = [f"http://{address}:{free_port()}" for address in addresses]
        self._peers = [f"http://{address}:{free_port()}" for address in addresses]
        self._stack = ExitStack()
        self._members: list[Process] = []

    @property
    def urls(self) -> Sequence[str]:
        """Returns the client URL of each member."""
        return tuple(self._clients)

    @property
    def endpoints(self) -> str:
        """Returns the URLs of all members, as a node's configuration takes them."""
        return ",".join(self._clients)

    def __enter__(self) -> Etcd:
        try:
            self._members = [self._start(number) for number in range(len(self._clients))]
            for member, client in zip(self._members, self._clients, strict=True):
                member.wait_until(lambda client=client: _is_well(client), 30)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def ask(self, path: str, request: dict[str, object], member: int = 0) -> dict[str, object]:
        """Returns a member's answer to a request of the JSON gateway."""
        told = urllib.request.Request(f"{self._clients[member]}/v3/{path}", json.dumps(request).encode(), method="POST")
        with urllib.request.urlopen(told, timeout=10) as answer:
            understood: dict[str, object] = json.load(answer)
        return understood

    def leader(self) -> int:
        """Returns the number of the member that leads. Waits for the end of an election."""
        found: int | None = None

        def has_leader() -> bool:
            nonlocal found
            leads = [self._status(member) for member in range(len(self._clients))]
            found = next((member for member, (own, leader) in enumerate(leads) if own == leader), None)
            return found is not None

        await_that("etcd has a leader", has_leader)
        return cast(int, found)

    def kill(self, member: int) -> None:
        """Ends a member as `kill -9` does; its folder stays."""
        os.kill(self._members[member].pid, signal.SIGKILL)
        self._members[member].stop()

    def start_again(self, member: int) -> None:
        """Starts a killed member again on its old folder."""
        self._members[member] = self._start(member)

    def lose(self) -> None:
        """Ends all members, removes their disks, and sets up empty ones at the same addresses."""
        for number in range(len(self._clients)):
            self.kill(number)
        for number in range(len(self._clients)):
            shutil.rmtree(self._folder / f"m{number}")
            self.start_again(number)
        for client in self._clients:
            await_that("a new member has a leader", lambda client=client: _is_well(client), 30)  # type: ignore[misc]

    def fill(self, to_bytes: int = 0) -> None:
        """Puts keys that no node uses until etcd has no room, or uses so many bytes."""
        value = base64.b64encode(bytes(200_000)).decode()
        for number in range(10_000):
            if to_bytes and int(str(self.ask("maintenance/status", {})["dbSizeInUse"])) >= to_bytes:
                return
            try:
                self.ask("kv/put", {"key": base64.b64encode(f"filler/{number}".encode()).decode(), "value": value})
            except urllib.error.HTTPError:
                return
        raise RuntimeError("etcd has no quota")

    def make_room(self) -> None:
        """Makes room as an operator does: removes the cause, compacts, defragments, and lets etcd take puts again."""
        first, end = (base64.b64encode(key).decode() for key in (b"filler/", b"filler0"))
        removed = self.ask("kv/deleterange", {"key": first, "range_end": end})["header"]
        revision = removed["revision"] if isinstance(removed, dict) else None
        self.ask("kv/compaction", {"revision": revision, "physical": True})
        for member in range(len(self._clients)):
            self.ask("maintenance/defragment", {}, member)
        for alarm in self.ask("maintenance/alarm", {"action": "GET"}).get("alarms", []):  # type: ignore[attr-defined]
            self.ask("maintenance/alarm", {"action": "DEACTIVATE", **alarm})

    def _status(self, member: int) -> tuple[object, object]:
        told = self.ask("maintenance/status", {}, member)
        header = told["header"]
        return header["member_id"] if isinstance(header, dict) else None, told.get("leader")

    def _start(self, number: int) -> Process:
        client, peer = self._clients[number], self._peers[number]
        everyone = ",".join(f"m{member}={url}" for member, url in enumerate(self._peers))
        arguments = {
            "name": f"m{number}",
            "data-dir": str(self._folder / f"m{number}"),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": everyone,
            "initial-cluster-state": "new",
            "logger": "zap",
            "log-level": "warn",
            "quota-backend-bytes": str(self._quota_bytes),
        }
        command = [self._program, *(f"--{name}={value}" for name, value in arguments.items())]
        process = Process(command, self._folder / f"m{number}.log")
        self._stack.callback(process.stop)
        return process


def _is_well(url: str) -> bool:
    """Returns whether a member has a leader."""
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as answer:
            return bool(json.load(answer)["health"] == "true")
    except OSError:
        return False
