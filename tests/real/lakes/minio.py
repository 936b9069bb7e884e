"""MinIO, built from source and run as a process of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from ..processes import Process, answers, free_port
from .base import ACCESS_KEY, SECRET_KEY, Account, Lake, LakeUnavailable, User, go_binary

# The last version the Go proxy offers.
MODULE = "github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c"


def binary() -> Path:
    """The path of the server."""
    return go_binary("minio", MODULE)


def start(folder: Path, users: Sequence[User] = (), address: str = "127.0.0.1") -> Lake:
    """One MinIO on one folder. It has one account; `users` are names in it that may do everything."""
    port = free_port()
    data = folder / "data"
    data.mkdir(parents=True)
    server = Process(
        [binary(), "server", "--address", f"{address}:{port}", "--console-address", f"127.0.0.1:{free_port()}", data],
        log=folder / "minio.log",
        env={
            "MINIO_ROOT_USER": ACCESS_KEY,
            "MINIO_ROOT_PASSWORD": SECRET_KEY,
            "MINIO_BROWSER": "off",
            "MINIO_CI_CD": "1",
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
