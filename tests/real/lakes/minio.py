"""MinIO, built from source and run as a process of its own."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from ..processes import Process, answers, free_port
from .base import (
    ACCESS_KEY,
    SECRET_KEY,
    TIER_DISKS,
    TIER_PARITY,
    Account,
    Lake,
    LakeUnavailable,
    TierStore,
    User,
    go_binary,
)

# The last version the Go proxy offers.
MODULE = "github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c"


def binary() -> Path:
    """Returns the path of the server."""
    return go_binary("minio", MODULE)


def start(
    folder: Path,
    users: Sequence[User] = (),
    address: str = "127.0.0.1",
    environment: Mapping[str, str] | None = None,
) -> Lake:
    """One MinIO on one folder. It has one account; `users` are names in it that may do everything."""
    data = folder / "data"
    data.mkdir(parents=True)
    return _serve(folder, data, users, address, environment)


def _serve(
    folder: Path, drives: Path, users: Sequence[User], address: str, environment: Mapping[str, str] | None = None
) -> Lake:
    port = free_port()
    server = Process(
        [binary(), "server", "--address", f"{address}:{port}", "--console-address", f"127.0.0.1:{free_port()}", drives],
        log=folder / "minio.log",
        env={
            "MINIO_ROOT_USER": ACCESS_KEY,
            "MINIO_ROOT_PASSWORD": SECRET_KEY,
            "MINIO_BROWSER": "off",
            # Several drives may be folders of one disk.
            "MINIO_CI_CD": "1",
            **(environment or {}),
        },
    )
    url, account = f"http://{address}:{port}", Account(ACCESS_KEY, SECRET_KEY)
    lake = Lake("minio", MODULE.rpartition("-")[2], url, account, processes=[server])
    try:
        server.wait_until(lambda: answers(port, address), 30)
        create_users(url, account, users)
    except BaseException:
        lake.stop()
        raise
    return lake


class MinioTier(TierStore):
    """Six drives, each a folder, and objects of all sizes in four data and two parity shards."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for disk in range(TIER_DISKS):
            self._drive(disk).mkdir(parents=True)
        drives = folder / f"drive{{1...{TIER_DISKS}}}"
        environment = {
            "MINIO_STORAGE_CLASS_STANDARD": f"EC:{TIER_PARITY}",
            # Its metrics tell how many drives it sees.
            "MINIO_PROMETHEUS_AUTH_TYPE": "public",
        }
        self.lake = _serve(folder, drives, (), "127.0.0.1", environment)

    def lose(self, disk: int) -> None:
        """See `TierStore`."""
        self._drive(disk).rename(self._aside(disk))
        # In place of a folder that is gone MinIO would make one, and heal it as a new drive.
        self._drive(disk).touch()

    def give_back(self, disk: int) -> None:
        """See `TierStore`."""
        self._drive(disk).unlink()
        self._aside(disk).rename(self._drive(disk))

    def is_whole(self) -> bool:
        """See `TierStore`."""
        try:
            with urllib.request.urlopen(f"{self.lake.url}/minio/v2/metrics/cluster", timeout=10) as answer:
                metrics = answer.read().decode()
        except OSError:
            return False
        online = re.search(r"^minio_cluster_drive_online_total\S* (\d+)", metrics, re.MULTILINE)
        return online is not None and int(online[1]) == TIER_DISKS

    def disk_bytes(self) -> tuple[int, int]:
        """See `TierStore`; the lengths of all files of objects."""
        files = (path for disk in range(TIER_DISKS) for path in self._drive(disk).glob("[!.]*/**/*") if path.is_file())
        total = sum(path.stat().st_size for path in files)
        return total, total

    def _drive(self, disk: int) -> Path:
        return self._folder / f"drive{disk + 1}"

    def _aside(self, disk: int) -> Path:
        return self._folder / f"away-{disk + 1}"


def create_users(url: str, root: Account, users: Sequence[User]) -> None:
    """Adds `users` by MinIO's admin protocol, whose bodies are encrypted with the root account's secret."""
    if not users:
        return
    try:
        # Only further accounts need the package.
        from minio import MinioAdmin  # noqa: PLC0415
        from minio.credentials import StaticProvider  # noqa: PLC0415
    except ImportError as error:
        raise LakeUnavailable(f"further accounts need the Python package `minio`: {error}") from error
    provider = StaticProvider(root.access_key, root.secret_key)
    admin = MinioAdmin(endpoint=urlsplit(url).netloc, credentials=provider, secure=False)
    for user in users:
        admin.user_add(user.account.access_key, user.account.secret_key)
        admin.attach_policy(["consoleAdmin"], user=user.account.access_key)
