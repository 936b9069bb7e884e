"""A lake with its STS, nodes in front of both, and clients of each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from botocore.client import BaseClient
from botocore.exceptions import ClientError
from real import aws
from real.lakes import Account, Lake
from real.report import Difference, Report, brief
from real.wire import Answer, send

from .cluster import Cluster
from .counter import Counter
from .issuer import Issuer
from .lakes import Roles

BUCKET = "exchange"
CONTENT = b"a hot object" * 100_000

# What STS or S3 says: the answer without what differs each time, or a status and a code.
Outcome = Any


@dataclass
class Scene:
    """Nodes that know the owner of the lake, and reach its STS by way of a counter."""

    report: Report
    lake: Lake
    roles: Roles
    issuer: Issuer
    cluster: Cluster
    sts: Counter

    @classmethod
    @contextmanager
    def of(
        cls, report: Report, lake: Lake, roles: Roles, issuer: Issuer, binary: Path, folder: Path
    ) -> Iterator[Scene]:
        """Starts the nodes, with a bucket of their own at the lake."""
        listed = [roles["ETL"], roles["BLIND"]]
        with (
            Counter(lake.url) as sts,
            Cluster(binary, folder, lake, listed, endpoint=sts.url, accounts=[lake.account]) as cluster,
        ):
            scene = cls(report, lake, roles, issuer, cluster, sts)
            owner = scene.s3(None, scene.owner)
            owner.create_bucket(Bucket=BUCKET)
            owner.put_object(Bucket=BUCKET, Key="hot", Body=CONTENT)
            yield scene

    @property
    def owner(self) -> Account:
        """Returns the account of the lake's owner."""
        return self.lake.account

    def check(self, *names: str) -> AbstractContextManager[None]:
        """Runs its body as one check; see `Report.check`."""
        return self.report.check(self.lake.name, *names)

    def note(self, text: str) -> None:
        """Prints what the lake does, without a judgement."""
        print(f"NOTE {self.lake.name} {text}", flush=True)

    def token(self, role: str = "ETL", subject: str = "system:serviceaccount:ns:etl", life_s: int = 3600) -> str:
        """Returns the token of a pod for a role."""
        return self.issuer.token(subject, role, life_s)

    def s3(self, node: int | None, key: Account) -> BaseClient:
        """Returns a client of a node, or of the lake itself."""
        return _client("s3", self.lake.url if node is None else self.cluster.nodes[node].url, key)

    def asking(self, node: int | None, key: Account) -> BaseClient:
        """Returns a client of the STS of a node, or of the lake itself."""
        return _client("sts", self.lake.url if node is None else self.cluster.sts_url(node), key)

    def read(self, node: int, key: Account, name: str = "hot", headers: Mapping[str, str] | None = None) -> Answer:
        """Reads an object at a node without any client library."""
        url, sent = self.cluster.nodes[node].url, dict(headers or {})
        return send(url, key, "GET", BUCKET, name, headers=sent, timeout_s=60)


def _client(service: str, url: str, account: Account) -> BaseClient:
    version = "s3v4" if service == "s3" else "v4"
    return aws.client(service, url, account, signature_version=version, retries={"total_max_attempts": 1})


def outcome(call: Callable[[], dict[str, Any]]) -> Outcome:
    """Returns what came of a call; see `Outcome`."""
    try:
        answer = call()
    except ClientError as error:
        # Ceph's STS puts the code where S3 has it, and boto3 looks elsewhere.
        said = error.response.get("Error", error.response)
        return error.response["ResponseMetadata"]["HTTPStatusCode"], said.get("Code", said)
    return _form(answer)


def _form(value: object, name: str = "") -> object:
    """Returns a value with its names, and without what differs each time."""
    if isinstance(value, dict):
        return {each: _form(inner, each) for each, inner in value.items() if each != "ResponseMetadata"}
    if isinstance(value, datetime):
        return f"in {round((value - datetime.now(UTC)).total_seconds() / 300) * 5} minutes"
    return name if name in ("AccessKeyId", "SecretAccessKey", "SessionToken") else value


def expect(found: object, expected: object, what: str = "") -> None:
    """Raises a difference unless both are the same."""
    if found != expected:
        raise Difference(f"{what}{': ' if what else ''}expected {brief(expected)}, found {brief(found)}")
