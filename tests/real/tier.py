"""The tier of nodes that write back: a bucket of an S3 store, and an etcd."""

from __future__ import annotations

from .etcd import Etcd
from .lakes import REGION, Lake
from .processes import await_that
from .wire import send

BUCKET = "shoal-tier"

TABLES = """
[write]
age = "{age}"
short_age = "{age}"

[[tier]]
name = "near"
endpoint = "{endpoint}"
region = "{region}"
access_key = "{access_key}"
secret_key = "{secret_key}"
bucket = "{bucket}"
capacity = "8GiB"
registry = "{registry}"
"""

RULE = """
[[write.rule]]
prefix = "{prefix}"
mode = "back"
"""


def tables(store: Lake, etcd: Etcd, age: str, prefixes: list[str]) -> str:
    """Tables of a node that writes back below these prefixes and brings to the lake what is dirty for this long."""
    tier = TABLES.format(
        age=age,
        endpoint=store.url,
        region=REGION,
        access_key=store.account.access_key,
        secret_key=store.account.secret_key,
        bucket=BUCKET,
        registry=etcd.endpoints,
    )
    return tier + "".join(RULE.format(prefix=prefix) for prefix in prefixes)


def prepare(store: Lake) -> None:
    """Makes the bucket. A store that has just begun says for a moment that it is not ready."""
    await_that(
        "the store of the tier has a bucket",
        lambda: send(store.url, store.account, "PUT", BUCKET).status == 200,
    )
