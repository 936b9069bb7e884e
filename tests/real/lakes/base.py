"""The interface of every lake of the proof: a URL, an account, and an orderly end."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ..processes import run

REGION = "us-east-1"
ACCESS_KEY = "lakekey"
SECRET_KEY = "lakesecret"

# Disks of a store of a tier, and how many of them may be gone: four data and two parity shards.
TIER_DISKS = 6
TIER_PARITY = 2


class LakeUnavailable(RuntimeError):
    """A lake that this machine cannot run; the message says why, for the line that reports the skip."""


@dataclass(frozen=True)
class Account:
    """A key pair that the lake knows; a temporary one has a session token."""

    access_key: str
    secret_key: str
    session_token: str | None = None


@dataclass(frozen=True)
class User:
    """An account with a name; lakes that know only keys ignore the rest."""

    account: Account
    user_id: str
    display_name: str
    email: str
    tenant: str = ""
    capabilities: str = ""
    """Whether the account may do everything with the buckets of others, too, where accounts are apart."""
    is_admin: bool = False


class Stoppable(Protocol):
    """A process, or several that end together."""

    def stop(self) -> None:
        """Ends it. Safe to repeat."""


@dataclass
class Lake:
    """A running S3 store on loopback."""

    name: str
    version: str
    url: str
    account: Account
    """Whether the lake verifies the checksums that the newest SDKs send, in headers and trailers."""
    knows_checksums: bool = True
    """The processes, in the order in which they have to be stopped."""
    processes: Sequence[Stoppable] = field(default_factory=list)

    def stop(self) -> None:
        """Stops all of it."""
        for process in self.processes:
            process.stop()

    def __enter__(self) -> Lake:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


@dataclass(frozen=True)
class Classes:
    """The storage class of the large objects of a tier; empty for the store's default, which small ones have."""

    large: str = ""


class TierStore(ABC):
    """A store with six disks that codes large objects so that two of the disks may be gone."""

    lake: Lake
    classes = Classes()
    """Bytes on disk for each byte of an object, without metadata."""
    large_ratio = TIER_DISKS / (TIER_DISKS - TIER_PARITY)
    small_ratio = large_ratio
    """The seconds that `disk_bytes` may lag behind."""
    counts_each_s = 0.0

    @abstractmethod
    def lose(self, disk: int) -> None:
        """Takes a disk away without warning."""

    @abstractmethod
    def give_back(self, disk: int) -> None:
        """Returns it as it was."""

    @abstractmethod
    def is_whole(self) -> bool:
        """Returns whether the store has noticed that all disks are back."""

    @abstractmethod
    def disk_bytes(self) -> tuple[int, int]:
        """The bytes on all disks where large objects are, and where small ones are; the same if it is one place."""

    def __enter__(self) -> TierStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.lake.stop()


def cache_dir() -> Path:
    """Returns the folder that keeps binaries and the virtual environment between runs."""
    base = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = base / "shoal"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def go_binary(name: str, module: str) -> Path:
    """Returns the path of a Go program, built once from `module@version` and kept in the cache folder."""
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
