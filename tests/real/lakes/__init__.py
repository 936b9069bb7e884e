"""Real S3 stores that the proof starts by itself, each in a folder of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from . import ceph, minio, versitygw
from .base import REGION, Account, Classes, Lake, LakeUnavailable, TierStore, User, cache_dir

LAKES: dict[str, Callable[[Path, Sequence[User]], Lake]] = {
    "versitygw": versitygw.start,
    "ceph": ceph.start,
    "minio": minio.start,
}

# The stores that can lose disks.
TIER_STORES: dict[str, Callable[[Path], TierStore]] = {"ceph": ceph.CephTier, "minio": minio.MinioTier}

__all__ = [
    "LAKES",
    "REGION",
    "TIER_STORES",
    "Account",
    "Classes",
    "Lake",
    "LakeUnavailable",
    "TierStore",
    "User",
    "cache_dir",
]
