"""Nodes that acknowledge the suite's writes before the lake has them."""

from __future__ import annotations

from real import tier
from real.cluster import Cluster

# A rule names one bucket, so all that the suite will make are named beforehand: it numbers them from 1 on.
BUCKET_PREFIX = "shoal-back-"
BUCKETS = 3000


def restart(cluster: Cluster, age: str) -> None:
    """Restarts the nodes with empty stores; they bring objects of this age to the lake."""
    prefixes = [f"s3://{BUCKET_PREFIX}{number}/" for number in range(1, BUCKETS + 1)]
    cluster.restart(tier.tables(tier.Place.of(cluster.store, cluster.etcd), age, prefixes))
