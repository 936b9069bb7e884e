"""An etcd for the registry of a tier: plain HTTP, so for loopback and networks of a test only."""

from __future__ import annotations

import json
import shutil
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from .processes import Process, free_port


class EtcdUnavailable(RuntimeError):
    """No etcd on this machine; the message says so, for the line that reports the skip."""


def program() -> str:
    """The path of etcd."""
    found = shutil.which("etcd")
    if found is None:
        raise EtcdUnavailable("etcd is not installed (Debian: etcd-server)")
    return found


class Etcd:
    """Members at these addresses, one each. It runs from `with` to the end of that."""

    def __init__(self, folder: Path, addresses: Sequence[str] = ("127.0.0.1",)) -> None:
        self._program = program()
        self._folder = folder
        # Addresses that are the same leave only the ports to tell members apart.
        self._clients = [f"http://{address}:{free_port()}" for address in addresses]
        self._peers = [f"http://{address}:{free_port()}" for address in addresses]
        self._stack = ExitStack()

    @property
    def endpoints(self) -> str:
        """Where nodes find it, as they are told it."""
        return ",".join(self._clients)

    def __enter__(self) -> Etcd:
        try:
            members = [self._start(number) for number in range(len(self._clients))]
            for member, client in zip(members, self._clients, strict=True):
                member.wait_until(lambda client=client: _is_well(client), 30)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

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
        }
        command = [self._program, *(f"--{name}={value}" for name, value in arguments.items())]
        process = Process(command, self._folder / f"m{number}.log")
        self._stack.callback(process.stop)
        return process


def _is_well(url: str) -> bool:
    """Whether a member has a leader."""
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as answer:
            return bool(json.load(answer)["health"] == "true")
    except OSError:
        return False
