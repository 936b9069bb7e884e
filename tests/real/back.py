"""Real clients at three nodes that acknowledge writes before the lake has them.

Connections go to the nodes in turn, so that each client speaks to all of them. In one run, nodes bring an object to the
lake only when a request needs it there; in the other, they bring everything while the clients work. A client must see
the same as at the lake, and in the end the lake must have the objects that the nodes showed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from . import raw, refused, tier
from .balancer import Balancer
from .clients import CLIENTS, Check, boto3_sdk
from .cluster import Cluster
from .comparison import Comparison, bucket_of, without
from .lakes import LAKES, Lake
from .report import Difference, Report, first_differences
from .store import Store, digest

AGES = ("1h", "1s")
# The store of the tier. It is not the lake, so that no test takes bytes of one for bytes of the other.
TIER = "versitygw"
# A lake adds these to the client's headers, MinIO some to every answer; a dirty object does not have them yet.
ADDED_BY_LAKES = frozenset(
    (
        "strict-transport-security",
        "vary",
        "x-amz-checksum-crc64nvme",
        "x-amz-checksum-type",
        "x-amz-storage-class",
        "x-content-type-options",
        "x-xss-protection",
    )
)
# The lake makes these with the object, and again at its flush; or they belong to the connection.
UNSTABLE = frozenset(("last-modified", "date", "server", "connection", "keep-alive", "x-amz-version-id"))

Snapshot = dict[str, dict[str, object]]


def prove(
    report: Report, lake: Lake, binary: Path, folder: Path, clients: Sequence[str], most: int | None = None
) -> None:
    """Runs these clients, at most so many checks of each, with both ages."""
    # The versions of a bucket go through, below a rule as elsewhere.
    prefixes = [
        f"s3://{bucket_of(client, age)}{more}/" for client in clients for age in AGES for more in ("", "-versions")
    ]
    prefixes += [f"s3://{raw.bucket_of(age)}/" for age in AGES]
    with ExitStack() as running:
        store = running.enter_context(LAKES[TIER](folder / f"{lake.name}-tier", ()))
        nodes = folder / f"{lake.name}-nodes"
        cluster = running.enter_context(Cluster(binary, nodes, lake, [lake.account], store=store))
        scratch = folder / f"{lake.name}-clients-back"
        comparisons = {client: Comparison(report, lake, client, scratch, ADDED_BY_LAKES) for client in clients}
        for age in AGES:
            cluster.restart(tier.tables(tier.Place.of(store, cluster.etcd), age, prefixes))
            with Balancer([node.s3_port for node in cluster.nodes]) as balancer:
                stores = {
                    client: work(report, comparison, cluster, balancer, age, CLIENTS[client][:most])
                    for client, comparison in comparisons.items()
                }
                raw.compare(report, lake, age, balancer.url)
            conclude(report, lake, cluster, age, comparisons, stores)
        refused.prove(report, lake.name, binary, folder, store)
        with report.check(lake.name, "nodes that write back", "log no error"):
            if errors := cluster.errors():
                raise Difference("\n".join(errors[:5]))


def work(
    report: Report, comparison: Comparison, cluster: Cluster, balancer: Balancer, age: str, checks: Sequence[Check]
) -> Store:
    """Runs a client's checks. Equal results prove something only if nodes wrote the client's objects back."""
    before = cluster.outcomes()
    store = comparison.run(checks, age, balancer.url, cluster.nodes[1].url)
    with report.check(store.bucket, "was written back"):
        grown = {word: count - before[word] for word, count in cluster.outcomes().items()}
        print(f"     {store.bucket}: {grown}, {cluster.dirty()} dirty", flush=True)
        if grown["committed"] == 0:
            raise Difference("no write of this client was acknowledged by the tier")
    return store


def conclude(
    report: Report,
    lake: Lake,
    cluster: Cluster,
    age: str,
    comparisons: dict[str, Comparison],
    stores: dict[str, Store],
) -> None:
    """Has the nodes bring everything to the lake, and compares the lake's objects with those that the nodes showed."""
    dirty = cluster.dirty()
    shown = {client: snapshot(store, cluster.nodes[2].url) for client, store in stores.items()}
    with report.check(lake.name, age, "everything reaches the lake"):
        if age == AGES[0] and dirty == 0:
            raise Difference("nothing was dirty any more, so the clients did not read what was")
        cluster.bring_to_the_lake(by_order=age == AGES[0])
        outcomes = cluster.outcomes()
        print(f"     {age}: {outcomes}", flush=True)
        if outcomes["flushed"] == 0:
            raise Difference("no object was flushed")
    for client, store in stores.items():
        with report.check(lake.name, client, age, "the lake has what the nodes showed"):
            at_the_lake = snapshot(store, lake.url)
            compare(at_the_lake, shown[client])
            compare(at_the_lake, snapshot(store, cluster.nodes[0].url))
        with report.check(lake.name, client, age, "the lake has what the client leaves there itself"):
            direct = comparisons[client].direct
            compare(snapshot(direct, lake.url), shown[client])
            if (found := uploads(store, lake.url)) != (expected := uploads(direct, lake.url)):
                raise Difference(f"open uploads at the lake: {found}, by the client itself {expected}")


def snapshot(store: Store, url: str) -> Snapshot:
    """Returns every object of the bucket as this place shows it in a LIST, a HEAD and a GET."""
    s3 = boto3_sdk.client(store, url)
    return {key: {"listed": listed, **read(s3, store.bucket, key)} for key, listed in listing(s3, store.bucket)}


def listing(s3: Any, bucket: str) -> list[tuple[str, list[object]]]:
    """Keys with ETag and size."""
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket)
    return [(each["Key"], [each["ETag"], each["Size"]]) for page in pages for each in page.get("Contents", [])]


def read(s3: Any, bucket: str, key: str) -> dict[str, object]:
    """Headers of a HEAD with checksums, and the bytes."""
    head = s3.head_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED")
    body = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    return {"headers": stable(boto3_sdk.headers(head)), "body": digest(body)}


def stable(headers: dict[str, str]) -> dict[str, str]:
    """Headers that stay while an object moves."""
    return {name: value for name, value in headers.items() if name not in UNSTABLE}


def uploads(store: Store, url: str) -> list[str]:
    """Returns the keys of uploads that were begun and neither completed nor aborted."""
    found = boto3_sdk.client(store, url).list_multipart_uploads(Bucket=store.bucket)
    return sorted(each["Key"] for each in found.get("Uploads", []))


def compare(lake: Snapshot, node: Snapshot) -> None:
    """Raises at the first differences of two views of a bucket."""
    differences = first_differences(without(ADDED_BY_LAKES, lake, node), node)
    if differences:
        raise Difference("; ".join(differences))
