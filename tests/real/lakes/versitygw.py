"""The Versity gateway: a strict S3 server on a plain folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from ..processes import Process, answers, free_port
from .base import ACCESS_KEY, REGION, SECRET_KEY, Account, Lake, User, go_binary

VERSION = "v1.8.0"


def binary() -> Path:
    """Returns the path of the program, which is the server and its own test suite."""
    return go_binary("versitygw", f"github.com/versity/versitygw/cmd/versitygw@{VERSION}")


def start(folder: Path, users: Sequence[User] = (), address: str = "127.0.0.1") -> Lake:
    """One gateway on one folder with versioning; `users` are ordinary accounts beside the root account."""
    port = free_port()
    for part in ("data", "versions", "iam"):
        (folder / part).mkdir(parents=True)
    accounts = {
        user.account.access_key: {
            "access": user.account.access_key,
            "secret": user.account.secret_key,
            "role": "admin" if user.is_admin else "userplus",
        }
        for user in users
    }
    (folder / "iam" / "users.json").write_text(json.dumps({"accessAccounts": accounts}))
    server = Process(
        [
            *(binary(), "--access", ACCESS_KEY, "--secret", SECRET_KEY, "--region", REGION),
            *("--port", f"{address}:{port}", "--iam-dir", folder / "iam"),
            *("posix", "--versioning-dir", folder / "versions", folder / "data"),
        ],
        log=folder / "versitygw.log",
        # Versitygw treats a CA bundle named here as its own setting and does not start.
        env={"AWS_CA_BUNDLE": ""},
    )
    lake = Lake("versitygw", VERSION, f"http://{address}:{port}", Account(ACCESS_KEY, SECRET_KEY), processes=[server])
    try:
        server.wait_until(lambda: answers(port, address), 30)
    except BaseException:
        lake.stop()
        raise
    return lake
