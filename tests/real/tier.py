"""The tier of nodes that write back: a bucket of an S3 store, and an etcd."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .etcd import Etcd
from .lakes import REGION, Account, Classes, Lake
from .processes import await_that
from .wire import send

BUCKET = "shoal-tier"
# It follows all of them.
_BESIDE_THE_PIECES = "pieces/~"

TABLES = """
[write]
age = "{age}"
permission = "{permission}"

[[tier]]
name = "near"
endpoint = "{endpoint}"
region = "{region}"
access_key = "{access_key}"
secret_key = "{secret_key}"
bucket = "{bucket}"
capacity = "{capacity}"
registry = "{registry}"
{optional}"""

RULE = """
[[write.rule]]
prefix = "{prefix}"
mode = "back"
"""

# Small objects go to the lake as soon as they are due, all that are due at once.
PACKED = """pack = true
pack_as = "{keeper}"
pack_idle = "0s"
"""


@dataclass(frozen=True)
class Place:
    """The URLs of a tier's store and registry, and the account at the store."""

    store: str
    account: Account
    registry: str

    @staticmethod
    def of(store: Lake, etcd: Etcd) -> Place:
        """Returns the place of a tier at these services."""
        return Place(store.url, store.account, etcd.endpoints)


def tables(
    place: Place,
    age: str,
    prefixes: Sequence[str],
    *,
    classes: Classes | None = None,
    kept: Sequence[str] = (),
    permission: str = "0s",
    capacity: str = "8GiB",
    quota_bytes: int = 0,
    keeper: str = "",
    pack_below: str = "",
    has_receipts: bool = False,
) -> str:
    """Returns tables of a node that writes back below these prefixes, and brings objects of this age to the lake.

    Below the prefixes of `kept`, objects stay for ten minutes, as all that their writers call short-lived. The node
    remembers the lake's permission to write for `permission`. The registry has a quota of `quota_bytes`, if that is not
    0. With a keeper, the access key of an identity, objects below `pack_below` (the node's default) are packed.
    With receipts, a lost registry can be recovered.
    """
    large = classes.large if classes else ""
    quota = f"{quota_bytes}B" if quota_bytes else ""
    optional = {"class_large": large, "registry_quota": quota}
    tier = TABLES.format(
        age=age,
        permission=permission,
        endpoint=place.store,
        region=REGION,
        access_key=place.account.access_key,
        secret_key=place.account.secret_key,
        bucket=BUCKET,
        capacity=capacity,
        registry=place.registry,
        optional="".join(f'{setting} = "{value}"\n' for setting, value in optional.items() if value)
        + ("receipts = true\n" if has_receipts else ""),
    )
    packed = PACKED.format(keeper=keeper) if keeper else ""
    packed += f'pack_below = "{pack_below}"\n' if pack_below else ""
    rules = [RULE.format(prefix=prefix) + packed for prefix in prefixes]
    rules += [RULE.format(prefix=prefix) + 'lifetime = "short"\n' for prefix in kept]
    return tier + "".join(rules)


def prepare(store: Lake) -> None:
    """Makes the bucket. A store that has just started says for a moment that it is not ready.

    One object stays beside the pieces: versitygw removes a folder with its last object, and meanwhile refuses PUTs
    into the folder (409 ExistingObjectIsDirectory).
    """
    for key in ("", _BESIDE_THE_PIECES):
        await_that(
            "the store of the tier has a bucket",
            lambda key=key: send(store.url, store.account, "PUT", BUCKET, key).status == 200,
        )
