"""MinIO, built from source and run as a process of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..processes import Process, answers, free_port
from .base import ACCESS_KEY, SECRET_KEY, Account, Lake, LakeUnavailable, User, go_binary

# The last version the Go proxy offers.
MODULE = "github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c"


def start(folder: Path, users: Sequence[User] = (), address: str = "127.0.0.1") -> Lake:
    """One MinIO on one folder; it has the root account alone."""
    if users:
        raise LakeUnavailable("further accounts need MinIO's own client")
    binary = go_binary("minio", MODULE)
    port = free_port()
    data = folder / "data"
    data.mkdir(parents=True)
    server = Process(
        [binary, "server", "--address", f"{address}:{port}", "--console-address", f"127.0.0.1:{free_port()}", data],
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
    except BaseException:
        lake.stop()
        raise
    return lake
