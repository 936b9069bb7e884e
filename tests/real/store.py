"""An S3 endpoint as a client gets it, with a bucket of its own, and the objects that clients put there."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from .lakes import REGION, Account


@dataclass(frozen=True)
class Store:
    """Everything a client needs; the same for the lake and for the node in front of it."""

    url: str
    """The URL that other clients use: the lake, past the node; if the node writes back, another node."""
    others_url: str
    account: Account
    bucket: str
    """A folder for this client's local files."""
    scratch: Path
    """See `Lake`."""
    knows_checksums: bool

    @property
    def host(self) -> str:
        """Returns host and port."""
        return urlsplit(self.url).netloc

    def environment(self) -> dict[str, str]:
        """Returns the variables that command-line clients read. The user's own settings have no effect."""
        nowhere = str(self.scratch / "absent")
        return {
            "AWS_ACCESS_KEY_ID": self.account.access_key,
            "AWS_SECRET_ACCESS_KEY": self.account.secret_key,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_REGION": REGION,
            "AWS_CONFIG_FILE": nowhere,
            "AWS_SHARED_CREDENTIALS_FILE": nowhere,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_PAGER": "",
            # A retry would hide an error that the node made.
            "AWS_MAX_ATTEMPTS": "1",
        }


def content(size: int, seed: int = 0) -> bytes:
    """Returns bytes that are the same in every run and differ between seeds."""
    return random.Random(f"{size}/{seed}").randbytes(size)


def digest(data: bytes) -> str:
    """Returns a short name for bytes, so that observations stay readable."""
    return f"{len(data)}:{hashlib.sha256(data).hexdigest()[:16]}"
