"""Runs the clients: `python -m roles --shoal BIN [--lake NAME] [--keep]`."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import boto3
from botocore.client import BaseClient
from botocore.config import Config
from real.lakes import REGION, Lake, LakeUnavailable
from real.processes import Process, free_port, run
from real.report import Difference, Report
from real.scratch import scratch

from .cluster import Cluster
from .issuer import Issuer
from .lakes import LAKES, Roles

BUCKET = "roles"
BYTES = b"some bytes" * 500_000

# What a client does with the credentials and endpoints of its environment; the last argument is what it writes.
BOTO3 = """
import boto3, sys
s3 = boto3.client("s3")
for key in sys.argv[2:]:
    s3.put_object(Bucket=sys.argv[1], Key=key, Body=b"written by a role")
    print(key, len(s3.get_object(Bucket=sys.argv[1], Key="hot")["Body"].read()))
"""

READ = """
import boto3, botocore, sys
try:
    print(len(boto3.client("s3").get_object(Bucket=sys.argv[1], Key=sys.argv[2])["Body"].read()))
except botocore.exceptions.ClientError as error:
    print(error.response["Error"]["Code"])
"""

POLARS = """
import polars, sys
polars.DataFrame({"x": [1, 2, 3]}).write_parquet(f"s3://{sys.argv[1]}/{sys.argv[2]}")
print(sys.argv[2], polars.scan_parquet(f"s3://{sys.argv[1]}/{sys.argv[2]}").collect().height)
"""


def main() -> int:
    """Parses, runs, counts."""
    parser = argparse.ArgumentParser(prog="tests/roles/run.sh", description=__doc__)
    parser.add_argument("--shoal", type=Path, required=True, help="the binary")
    parser.add_argument("--lake", choices=LAKES, help="only this lake")
    parser.add_argument("--keep", action="store_true", help="keep logs and data")
    arguments = parser.parse_args()
    report, issuer = Report(), Issuer()
    names = [arguments.lake] if arguments.lake else list(LAKES)
    try:
        with scratch("shoal-roles-", arguments.keep) as folder:
            for name in names:
                try:
                    with LAKES[name](folder / name, issuer) as (lake, roles):
                        prove(report, lake, roles, arguments.shoal.resolve(), folder / f"{name}-nodes", issuer)
                except LakeUnavailable as reason:
                    report.skip(name, str(reason))
    finally:
        issuer.stop()
    return report.finish()


def prove(report: Report, lake: Lake, roles: Roles, binary: Path, folder: Path, issuer: Issuer) -> None:
    """Runs all clients at three nodes in front of one lake with two roles."""
    print(f"-- {lake.name} {lake.version}", flush=True)
    owner = boto3.client(
        "s3",
        endpoint_url=lake.url,
        region_name=REGION,
        aws_access_key_id=lake.account.access_key,
        aws_secret_access_key=lake.account.secret_key,
    )
    owner.create_bucket(Bucket=BUCKET)
    owner.put_object(Bucket=BUCKET, Key="hot", Body=BYTES)
    with Cluster(binary, folder, lake, [roles["ETL"], roles["BLIND"]]) as cluster:
        Clients(report, lake.name, binary, cluster, issuer, roles, folder).run()
        with report.check(lake.name, "nodes", "have no secret in their logs"):
            logs = "".join(node.log.read_text(errors="replace") for node in cluster.nodes)
            shown = [each for each in ("eyJ", "SecretAccessKey", "ERROR", "panicked") if each in logs]
            expect(shown, [])


def expect(found: object, expected: object) -> None:
    """Raises a difference unless both are the same."""
    if found != expected:
        raise Difference(f"expected {expected!r}, found {found!r}")


class Clients:
    """What clients do, each in a process of its own with nothing but its environment."""

    def __init__(
        self, report: Report, lake: str, binary: Path, cluster: Cluster, issuer: Issuer, roles: Roles, folder: Path
    ) -> None:
        self._report, self._lake, self._binary, self._cluster = report, lake, binary, cluster
        self._issuer, self._roles, self._folder = issuer, roles, folder

    def run(self) -> None:
        """Runs all of them."""
        container, sts = self._container("ETL"), self._sts("ETL")
        for name, environment in (("endpoint of credentials", container), ("STS", sts)):
            with self._report.check(self._lake, "boto3", name):
                expect(self._python(BOTO3, environment, BUCKET, "a", "b"), f"a {len(BYTES)}\nb {len(BYTES)}\n")
            with self._report.check(self._lake, "polars", name):
                expect(self._python(POLARS, environment, BUCKET, "table.parquet"), "table.parquet 3\n")
        with self._report.check(self._lake, "aws-cli", "credential_process"):
            self._aws_cli()
        with self._report.check(self._lake, "boto3", "sidecar on loopback"):
            self._sidecar()
        with self._report.check(self._lake, "presigned URL", "of a role, at another node"):
            self._presigned()
        with self._report.check(self._lake, "two roles", "one may not read what is cached"):
            refused = self._python(READ, self._container("BLIND"), BUCKET, "hot")
            expect(refused, "AccessDenied\n")
            expect(self._python(READ, container, BUCKET, "hot"), f"{len(BYTES)}\n")
        with self._report.check(self._lake, "token", "for another audience"):
            environment = self._container("ETL", audience="another")
            refused = self._python(READ, environment, BUCKET, "hot")
            if "Error" not in refused and "Exception" not in refused:
                raise Difference(refused)
        with self._report.check(self._lake, "role", "that is not listed"):
            refused = self._python(READ, self._container("OTHER"), BUCKET, "hot")
            if "does not list it" not in refused:
                raise Difference(refused)
        with self._report.check(self._lake, "restart of all nodes", "a client goes on with the key that it has"):
            self._restart()

    def _token(self, role: str, audience: str | None = None) -> Path:
        path = self._folder / f"token-{role}-{audience}"
        path.write_text(self._issuer.token("system:serviceaccount:ns:etl", audience or role))
        return path

    def _common(self, node: int) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self._folder),
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_ENDPOINT_URL_S3": self._cluster.nodes[node].url,
            # The name that object_store reads.
            "AWS_ENDPOINT_URL": self._cluster.nodes[node].url,
            "AWS_ALLOW_HTTP": "true",
        }

    def _container(self, role: str, audience: str | None = None) -> dict[str, str]:
        """The environment of a pod that gets its key from the first node and works at the second."""
        url = f"{self._cluster.sts_url(0)}/v1/credentials?role={quote(self._roles[role], safe='')}"
        return {
            **self._common(1),
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": url,
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(self._token(role, audience)),
        }

    def _sts(self, role: str) -> dict[str, str]:
        """The environment of a pod with the variables of IRSA, and the address of STS."""
        return {
            **self._common(2),
            "AWS_ENDPOINT_URL_STS": self._cluster.sts_url(1),
            "AWS_ROLE_ARN": self._roles[role],
            "AWS_WEB_IDENTITY_TOKEN_FILE": str(self._token(role)),
        }

    @staticmethod
    def _python(program: str, environment: dict[str, str], *arguments: str) -> str:
        command = [sys.executable, "-c", program, *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        return done.stdout + done.stderr

    def _aws_cli(self) -> None:
        process = [
            *(str(self._binary), "credentials", "--node", self._cluster.sts_url(2)),
            *("--role", self._roles["ETL"], "--token-file", str(self._token("ETL"))),
        ]
        configuration = self._folder / "aws-config"
        configuration.write_text(f"[default]\ncredential_process = {shlex.join(process)}\n")
        environment = {**self._common(0), "AWS_CONFIG_FILE": str(configuration)}
        command = [Path(sys.executable).with_name("aws"), "s3", "ls", f"s3://{BUCKET}/hot"]
        listed = run([str(part) for part in command], env=environment)
        expect(listed.split()[2:], [str(len(BYTES)), "hot"])

    def _sidecar(self) -> None:
        port = free_port()
        command = [
            *(self._binary, "credentials", "--node", self._cluster.sts_url(0), "--role", self._roles["ETL"]),
            *("--token-file", self._token("ETL"), "--listen", f"127.0.0.1:{port}"),
        ]
        sidecar = Process.listening(command, self._folder / "sidecar.log", port)
        try:
            url = f"http://127.0.0.1:{port}/"
            environment = {**self._common(1), "AWS_CONTAINER_CREDENTIALS_FULL_URI": url}
            expect(self._python(READ, environment, BUCKET, "hot"), f"{len(BYTES)}\n")
            rebound = Request(url, headers={"Host": "evil.example.com"})
            try:
                with urlopen(rebound, timeout=10) as answer:
                    raise Difference(f"a page of another site got {answer.status}")
            except HTTPError as refusal:
                expect(refusal.code, 421)
        finally:
            sidecar.stop()

    def _key(self) -> dict[str, str]:
        url = self._container("ETL")["AWS_CONTAINER_CREDENTIALS_FULL_URI"]
        request = Request(url, headers={"Authorization": self._token("ETL").read_text()})
        with urlopen(request, timeout=60) as answer:
            document: dict[str, str] = json.load(answer)
        return document

    def _client(self, node: int, key: dict[str, str]) -> BaseClient:
        return boto3.client(
            "s3",
            endpoint_url=self._cluster.nodes[node].url,
            region_name=REGION,
            aws_access_key_id=key["AccessKeyId"],
            aws_secret_access_key=key["SecretAccessKey"],
            aws_session_token=key["Token"],
            config=Config(signature_version="s3v4"),
        )

    def _presigned(self) -> None:
        client = self._client(1, self._key())
        url = client.generate_presigned_url("get_object", Params={"Bucket": BUCKET, "Key": "hot"})
        for _ in range(2):
            with urlopen(url, timeout=60) as answer:
                expect(len(answer.read()), len(BYTES))

    def _restart(self) -> None:
        key = self._key()
        expect(len(self._client(0, key).get_object(Bucket=BUCKET, Key="hot")["Body"].read()), len(BYTES))
        self._cluster.stop()
        self._cluster.start()
        for node in range(len(self._cluster.nodes)):
            body = self._client(node, key).get_object(Bucket=BUCKET, Key="hot")["Body"]
            expect(len(body.read()), len(BYTES))


if __name__ == "__main__":
    sys.exit(main())
