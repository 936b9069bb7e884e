"""A lake, a store and a registry of a tier, and nodes in front of them with and without the tier."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from real.etcd import Etcd
from real.lakes import LAKES, REGION, Account, Lake
from real.node import Node
from real.processes import await_that
from real.wire import send

from bench.bed import BUCKET, require_ok
from bench.report import Page

# Names that begin so are below the rule.
BACK = "back/"
TIER_BUCKET = "shoal-tier"
T = TypeVar("T")
ETCD, EMBEDDED = "etcd", "embedded"

_TABLES = """
[write]
age = "{age}"
{permission}

[[write.rule]]
prefix = "s3://{bucket}/{back}"
mode = "back"

[[tier]]
name = "near"
capacity = "64GiB"
"""
_STORE = """\
endpoint = "{endpoint}"
region = "{region}"
access_key = "{access_key}"
secret_key = "{secret_key}"
bucket = "{bucket}"
registry = "{registry}"
"""


@dataclass(frozen=True)
class Options:
    """The command line."""

    binary: Path
    rounds: int
    seconds: float
    """Dirty objects in the registry."""
    objects: int
    lake: str


@dataclass
class TierBed:
    """Everything of one part; it ends with its block."""

    options: Options
    folder: Path
    page: Page
    lake: Lake = field(init=False)
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> TierBed:
        self.lake = self.enter(LAKES[self.options.lake](self.folder / "lake", ()))
        make_bucket(self.lake, BUCKET)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def account(self) -> Account:
        """Returns the account that signs every request."""
        return self.lake.account

    @property
    def scratch(self) -> Path:
        """Returns the path of the file with the load generator's requests."""
        return self.folder / "requests"

    def store(self) -> Lake:
        """Starts a store for the bytes of a tier, with its bucket."""
        store = self.enter(LAKES[self.options.lake](self.folder / "store", ()))
        make_bucket(store, TIER_BUCKET)
        return store

    def etcd(self) -> Etcd:
        """Starts an etcd of one member."""
        return self.enter(Etcd(self.folder / "etcd"))

    def node(self, name: str, tables: str = "", *, lake_url: str = "", **settings: object) -> Node:
        """Starts a node with these tables beside those that all have."""
        node = Node(
            self.options.binary,
            self.folder / name,
            lake_url or self.lake.url,
            [self.account],
            name=name,
            tables=tables,
            **settings,  # type: ignore[arg-type]
        )
        return self.enter(node)

    def enter(self, context: AbstractContextManager[T]) -> T:
        """Anything else that ends with the bed."""
        return self._stack.enter_context(context)

    def put(self, url: str, key: str, body: bytes, mode: str = "") -> None:
        """One PUT that must succeed, in a mode of the node."""
        headers = {"x-shoal-write": mode} if mode else {}
        answer = send(url, self.account, "PUT", BUCKET, key, headers=headers, body=body)
        require_ok(answer.status)
        if mode == "back" and answer.headers.get("x-shoal-write") != "back":
            raise RuntimeError(f"a write was to go back: {answer.headers}")


def tables(store: str, age: str = "24h", permission: str = "") -> str:
    """Returns the tables of a tier with the described store and registry, and of a rule that uses it.

    A node remembers the lake's permission for its default time, or for `permission`.
    """
    remembered = f'permission = "{permission}"' if permission else ""
    return _TABLES.format(age=age, permission=remembered, bucket=BUCKET, back=BACK) + store


def at_etcd(store: Lake, registry_url: str, store_url: str = "") -> str:
    """Returns the description of a store with an etcd, for `tables`."""
    return _STORE.format(
        endpoint=store_url or store.url,
        region=REGION,
        access_key=store.account.access_key,
        secret_key=store.account.secret_key,
        bucket=TIER_BUCKET,
        registry=registry_url,
    )


def in_folder(folder: Path) -> str:
    """Returns the description of a folder with an embedded registry, for `tables`."""
    return f'folder = "{folder}"\n'


def of_engine(bed: TierBed, engine: str) -> tuple[str, Callable[[], int]]:
    """Starts the services of a tier with this registry. Returns its description, and a counter of etcd's requests."""
    if engine == EMBEDDED:
        return in_folder(bed.folder / f"tier-{engine}"), lambda: 0
    etcd = bed.etcd()
    return at_etcd(bed.store(), etcd.endpoints), lambda: etcd_requests(etcd.endpoints)


def etcd_requests(url: str) -> int:
    """Returns the number of reads, commits and leases that an etcd has answered to clients since it started."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    # Etcd's own gateway asks etcd by gRPC, as any client does.
    wanted = ('grpc_service="etcdserverpb.KV"', 'grpc_service="etcdserverpb.Lease"')
    counts = (line for line in lines if line.startswith("grpc_server_handled_total{"))
    return sum(int(float(line.rsplit(" ", 1)[1])) for line in counts if any(word in line for word in wanted))


def dirty_objects(node: Node) -> int:
    """Returns the number of objects that clients wrote through this node and the lake does not have yet."""
    tiers = json.loads(node.ask("/status"))["write_back"]["tiers"]
    return sum(tier["objects"] for tier in tiers)


def lake_requests(node: Node) -> int:
    """Returns the number of requests that the node has sent to the lake and to the stores of its tiers."""
    lines = node.metrics().splitlines()
    return sum(int(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("shoal_lake_requests_total{"))


def make_bucket(store: Lake, bucket: str) -> None:
    """Makes a bucket once the store answers."""
    await_that(
        f"{store.name} has a bucket",
        lambda: send(store.url, store.account, "PUT", bucket).status == 200,
    )
