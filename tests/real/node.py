"""One Shoal node in front of a lake: its configuration file, its process, and its report about itself."""

from __future__ import annotations

import json
import secrets
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .lakes import REGION, Account
from .processes import Process, free_port

CONFIGURATION = """\
[node]
name = "{name}"
topology = "{topology}"

[s3]
listen = "{address}:{s3_port}"

[admin]
listen = "{admin_address}:{admin_port}"
{admin_tokens}
[lake]
endpoint = "{lake_url}"
region = "{region}"

[store]
path = "{store}"
capacity = "{capacity}"
block_size = "{block_size}"

[freshness]
default = "{freshness}"
"""

# Each identity is the same account here and at the lake, so that both answer the same client.
IDENTITY = """
[[identity]]
access_key = "{access_key}"
secret_key = "{secret_key}"
lake_access_key = "{access_key}"
lake_secret_key = "{secret_key}"
"""


@dataclass
class Node:
    """A node that `start` brings up; it lives in `folder`."""

    binary: Path
    folder: Path
    lake_url: str
    accounts: Sequence[Account]
    freshness: str = "revalidate"
    capacity: str = "20GiB"
    block_size: str = "4MiB"
    environment: dict[str, str] = field(default_factory=dict)
    name: str = "proof"
    topology: str = "dc1/cluster-a/rack-1"
    address: str = "127.0.0.1"
    admin_address: str = "127.0.0.1"
    """Tables of its configuration beside those that every node of the proof has."""
    tables: str = ""
    """The prefix of its command, such as the one that runs it in a namespace."""
    within: Sequence[str] = ()
    s3_port: int = field(default_factory=free_port)
    admin_port: int = field(default_factory=free_port)
    _process: Process | None = None
    _token: str = field(default_factory=lambda: secrets.token_hex(32))
    _aside: int = 0

    @property
    def url(self) -> str:
        """Returns the node's S3 URL."""
        return f"http://{self.address}:{self.s3_port}"

    @property
    def pid(self) -> int:
        """Returns the node's process id while it runs."""
        if self._process is None:
            raise RuntimeError("the node is not running")
        return self._process.pid

    def start(self) -> Node:
        """Starts the node with the present contents of its store, and waits until it is ready."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.token_file is not None:
            self.token_file.write_text(self._token)
        self.configuration.touch(mode=0o600)
        self.configuration.write_text(self._configuration())
        command = [*self.within, self.binary, "serve", "--config", self.configuration]
        self._process = Process(command, self.log, env=self.environment)
        try:
            self._process.wait_until(self._ready, 30)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stops it; its store stays."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def restart_cold(self) -> None:
        """Starts the node again with an empty store.

        The old store is set aside, not removed: before ext4 makes a new file, it looks at each file that was removed in
        the last half minute, so the end of the old store would slow down the new one.
        """
        self.stop()
        if self.store.exists():
            self._aside += 1
            self.store.rename(self.folder / f"store-{self._aside}")
        self.start()

    def forget_old_stores(self) -> None:
        """Removes the stores that were set aside."""
        for old in self.folder.glob("store-*"):
            shutil.rmtree(old)

    def settle(self) -> None:
        """Waits until nothing is on its way to it or to its disk."""
        for _ in range(1000):
            reads = json.loads(self.ask("/status"))["reads"]
            if reads["flights"] == 0 and reads["fill_bytes"] == 0:
                return
            time.sleep(0.01)
        raise RuntimeError(f"blocks are still on their way to {self.name}")

    def metrics(self) -> str:
        """Returns the text of `/metrics`."""
        return self.ask("/metrics")

    def ask(self, path: str) -> str:
        """Returns the text of a page of the node's admin port."""
        with urllib.request.urlopen(self.request(path), timeout=10) as answer:
            text: bytes = answer.read()
        return text.decode()

    def request(self, path: str, method: str = "GET") -> urllib.request.Request:
        """Returns a request to the node's admin port, with the token that it may ask for."""
        return urllib.request.Request(
            f"{self.admin}{path}", method=method, headers={"authorization": f"Bearer {self._token}"}
        )

    @property
    def token_file(self) -> Path | None:
        """Returns the file with the token that the node asks for, if its admin port is not on loopback."""
        return None if self.admin_address == "127.0.0.1" else self.folder / "admin-token"

    @property
    def shown(self) -> list[str | Path]:
        """Returns the arguments with which a command shows the token."""
        return [] if self.token_file is None else ["--token-file", self.token_file]

    @property
    def log(self) -> Path:
        """Returns the path of the node's stderr, over all its starts."""
        return self.folder / "node.log"

    @property
    def configuration(self) -> Path:
        """Returns the path of the file that the node reads when it starts, and again at SIGHUP."""
        return self.folder / "shoal.toml"

    def __enter__(self) -> Node:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def admin(self) -> str:
        """Returns the node's admin URL."""
        return f"http://{self.admin_address}:{self.admin_port}"

    @property
    def store(self) -> Path:
        """Returns the folder of the node's blocks."""
        return self.folder / "store"

    def _configuration(self) -> str:
        head = CONFIGURATION.format(
            name=self.name,
            topology=self.topology,
            address=self.address,
            admin_address=self.admin_address,
            s3_port=self.s3_port,
            admin_port=self.admin_port,
            admin_tokens="" if self.token_file is None else f'token_file = "{self.token_file}"\n',
            lake_url=self.lake_url,
            region=REGION,
            store=self.store,
            capacity=self.capacity,
            block_size=self.block_size,
            freshness=self.freshness,
        )
        identities = (
            IDENTITY.format(access_key=account.access_key, secret_key=account.secret_key) for account in self.accounts
        )
        return head + self.tables + "".join(identities)

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(self.request("/readyz"), timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False
