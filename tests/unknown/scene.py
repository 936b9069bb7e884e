"""What all checks of one lake have in common: the lake, the nodes, and clients of the guest."""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path

from botocore.client import BaseClient
from botocore.exceptions import ClientError
from real import aws
from real.lakes import REGION, Account
from real.node import Node
from real.report import Difference, Report, brief

from .cluster import Cluster
from .lakes import GuestLake


@dataclass
class Scene:
    """One lake, and three nodes in front of it."""

    report: Report
    place: GuestLake
    cluster: Cluster
    binary: Path
    folder: Path

    @property
    def nodes(self) -> list[Node]:
        """Returns the nodes of the cluster."""
        return self.cluster.nodes

    def check(self, *names: str) -> AbstractContextManager[None]:
        """Runs its body as one check; see `Report.check`."""
        return self.report.check(self.place.lake.name, *names)

    def skip(self, name: str, reason: str) -> None:
        """Records a skipped check."""
        self.report.skip(f"{self.place.lake.name} {name}", reason)

    def note(self, text: str) -> None:
        """Prints what was found out about the lake, without a judgement."""
        print(f"NOTE {self.place.lake.name} {text}", flush=True)

    def client(self, node: int, account: Account | None = None) -> BaseClient:
        """Returns a client of a node; of the guest, unless another account is named."""
        return self.client_of(self.nodes[node], account)

    def client_of(self, node: Node, account: Account | None = None) -> BaseClient:
        """Returns a client of any node, which tries once."""
        return aws.client(
            "s3",
            node.url,
            account or self.place.guest,
            signature_version="s3v4",
            s3={"addressing_style": "path"},
            retries={"total_max_attempts": 1},
            request_checksum_calculation=self._checksums,
        )

    def environment(self, url: str | None = None) -> dict[str, str]:
        """Returns all that a process of the guest knows; a process without `url` has to be told where to go."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
            # Without it the newest SDKs send what an old Ceph does not know.
            "AWS_REQUEST_CHECKSUM_CALCULATION": self._checksums.upper(),
            **({} if url is None else {**aws.variables(self.place.guest), "AWS_ENDPOINT_URL_S3": url}),
        }

    @property
    def _checksums(self) -> str:
        return "when_supported" if self.place.lake.knows_checksums else "when_required"


@dataclass(frozen=True)
class Read:
    """The answer to a GET."""

    body: bytes
    """Where the bytes came from: `X-Cache`, and with it `X-Cache-Reason`."""
    found: str
    headers: Mapping[str, str]


def read(client: BaseClient, bucket: str, key: str, **parameters: object) -> Read:
    """Returns all of an answer to a GET."""
    answer = client.get_object(Bucket=bucket, Key=key, **parameters)
    headers = answer["ResponseMetadata"]["HTTPHeaders"]
    return Read(answer["Body"].read(), found(headers), headers)


def found(headers: Mapping[str, str]) -> str:
    """Returns `X-Cache` and its reason."""
    return " ".join(headers[name] for name in ("x-cache", "x-cache-reason") if name in headers)


def refusal(call: Callable[[], object]) -> tuple[int, str]:
    """Returns the status and the code with which a call is refused."""
    try:
        answer = call()
    except ClientError as error:
        return error.response["ResponseMetadata"]["HTTPStatusCode"], error.response["Error"]["Code"]
    raise Difference(f"it was answered: {brief(answer)}")


def ended(command: Sequence[str | Path], environment: Mapping[str, str]) -> str:
    """Returns the output of a process that has nothing but this environment, also if it fails."""
    done = subprocess.run(
        [str(part) for part in command],
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.stdout + done.stderr


def settled(client: BaseClient, bucket: str, key: str) -> None:
    """Waits until the second in which an object was written is over at the lake: no node confirms it before."""
    while True:
        answer = client.head_object(Bucket=bucket, Key=key)
        now = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
        if now > answer["LastModified"]:
            return
        time.sleep(0.1)


def expect(found: object, expected: object, what: str = "") -> None:
    """Raises a difference unless both are the same."""
    if found != expected:
        raise Difference(f"{what}{': ' if what else ''}expected {brief(expected)}, found {brief(found)}")


def content(size_bytes: int, seed: str) -> bytes:
    """Returns bytes that no other seed gives, and no other place of the same object has."""
    return hashlib.shake_128(seed.encode()).digest(size_bytes)
