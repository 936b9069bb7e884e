"""Nodes that acknowledge the suite's writes before the lake has them."""

from __future__ import annotations

import contextlib

from packed import client_of, remove
from real import tier
from real.cluster import Cluster
from users import KEEPER

# A rule names one bucket, so all that the suite will make are named beforehand: it numbers them from 1 on.
BUCKET_PREFIX = "shoal-back-"
BUCKETS = 3000
# Nodes look at the map of each rule that packs every second, so only a part of the suite's buckets have one at a time.
PACKED_BUCKETS = 40


def restart(cluster: Cluster, age: str) -> None:
    """Restarts the nodes with empty stores; they bring objects of this age to the lake."""
    cluster.restart(tier.tables(tier.Place.of(cluster.store, cluster.etcd), age, _prefixes(BUCKETS)))


def restart_packed(cluster: Cluster) -> None:
    """Restarts the nodes with an empty registry, and without a bucket; they pack small objects that are a second old.

    The suite numbers its buckets from 1 on again, and a bucket with packs is nothing without its part of the registry.
    """
    cluster.stop()
    cluster.forget()
    lake = client_of(cluster.store.url, KEEPER.account.access_key, KEEPER.account.secret_key)
    for number in range(1, PACKED_BUCKETS + 1):
        with contextlib.suppress(lake.exceptions.NoSuchBucket):
            remove(lake, f"{BUCKET_PREFIX}{number}")
            lake.delete_bucket(Bucket=f"{BUCKET_PREFIX}{number}")
    place = tier.Place.of(cluster.store, cluster.etcd)
    cluster.restart(tier.tables(place, "1s", _prefixes(PACKED_BUCKETS), keeper=KEEPER.account.access_key))


def _prefixes(buckets: int) -> list[str]:
    return [f"s3://{BUCKET_PREFIX}{number}/" for number in range(1, buckets + 1)]
