"""What every lake of the proof offers: a URL, an account, and an orderly end."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from ..processes import Process, run

REGION = "us-east-1"
ACCESS_KEY = "lakekey"
SECRET_KEY = "lakesecret"


class LakeUnavailable(RuntimeError):
    """A lake that this machine cannot run; the message says why, for the line that reports the skip."""


@dataclass(frozen=True)
class Account:
    """A key pair that the lake knows."""

    access_key: str
    secret_key: str


@dataclass(frozen=True)
class User:
    """An account with a name; lakes that know only keys ignore the rest."""

    account: Account
    user_id: str
    display_name: str
    email: str
    tenant: str = ""
    capabilities: str = ""


@dataclass
class Lake:
    """A running S3 store on loopback."""

    name: str
    version: str
    url: str
    account: Account
    """Whether it verifies the checksums that the newest SDKs send, in headers and trailers."""
    knows_checksums: bool = True
    """In the order they have to be stopped."""
    processes: list[Process] = field(default_factory=list)

    def stop(self) -> None:
        """Stops all of it."""
        for process in self.processes:
            process.stop()

    def __enter__(self) -> Lake:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def cache_dir() -> Path:
    """Where binaries and the virtual environment are kept between runs."""
    base = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = base / "shoal"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def go_binary(name: str, module: str) -> Path:
    """The path of a Go program, built once from `module@version` and kept in the cache folder."""
    folder = cache_dir() / "bin"
    binary = folder / name
    if binary.exists():
        return binary
    go = shutil.which("go")
    if go is None:
        raise LakeUnavailable(f"{name} is not in {folder}, and there is no `go` to build it with")
    folder.mkdir(exist_ok=True)
    # Several suites may want it at the same time: one builds it, and it appears whole.
    with (folder / f"{name}.lock").open("w") as lock, tempfile.TemporaryDirectory(dir=folder) as fresh:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if binary.exists():
            return binary
        try:
            run([go, "install", module], env={"GOBIN": fresh}, timeout_s=1200)
        except RuntimeError as error:
            raise LakeUnavailable(f"building {name} failed: {error}") from error
        (Path(fresh) / name).rename(binary)
    return binary
