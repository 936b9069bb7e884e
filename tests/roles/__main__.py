"""Runs the clients: `python -m roles --shoal BIN --clients PYTHON [--lake NAME] [--keep]`."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Sequence
from ipaddress import IPv4Address
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from cryptography import x509
from real.aws import client
from real.certificates import certify
from real.lakes import Lake, LakeUnavailable
from real.processes import Process, free_port, run
from real.report import Difference, Report
from real.scratch import scratch
from sdks.clients import Client, available
from sdks.trial import CONTENT, HOT

from . import exchange, many
from .cluster import Cluster
from .issuer import Issuer
from .lakes import LAKES, Roles
from .pods import Pods
from .scene import expect

BUCKET = "roles"

# What a client does with the credentials and endpoints of its environment.
READ = """
import boto3, botocore, sys
try:
    print(len(boto3.client("s3").get_object(Bucket=sys.argv[1], Key=sys.argv[2])["Body"].read()))
except botocore.exceptions.ClientError as error:
    print(error.response["Error"]["Code"])
"""


def main() -> int:
    """Parses, runs, counts."""
    parser = argparse.ArgumentParser(prog="tests/roles/run.sh", description=__doc__)
    parser.add_argument("--shoal", type=Path, required=True, help="the binary")
    parser.add_argument("--clients", type=Path, required=True, help="a Python with the packages of the SDKs")
    parser.add_argument("--lake", choices=LAKES, help="only this lake")
    parser.add_argument("--keep", action="store_true", help="keep logs and data")
    arguments = parser.parse_args()
    report, issuer = Report(), Issuer()
    names = [arguments.lake] if arguments.lake else list(LAKES)
    clients, binary = list(available(report, arguments.clients)), arguments.shoal.resolve()
    try:
        with scratch("shoal-roles-", arguments.keep) as folder:
            for name in names:
                try:
                    with LAKES[name](folder / name, issuer) as (lake, roles):
                        prove(report, lake, roles, binary, folder / f"{name}-nodes", issuer, clients)
                except LakeUnavailable as reason:
                    report.skip(name, str(reason))
    finally:
        issuer.stop()
    return report.finish()


def prove(
    report: Report,
    lake: Lake,
    roles: Roles,
    binary: Path,
    folder: Path,
    issuer: Issuer,
    clients: Sequence[Client],
) -> None:
    """Runs all clients at three nodes in front of one lake with two roles."""
    print(f"-- {lake.name} {lake.version}", flush=True)
    owner = client("s3", lake.url, lake.account)
    owner.create_bucket(Bucket=BUCKET)
    owner.put_object(Bucket=BUCKET, Key=HOT, Body=CONTENT)
    folder.mkdir()
    certificate = certify(folder / "tls", x509.IPAddress(IPv4Address("127.0.0.1")))
    with Cluster(binary, folder, lake, [roles["ETL"], roles["BLIND"]], certificate=certificate) as cluster:
        pods = Pods(lake, cluster, issuer, roles, folder, certificate)
        many.run(report, pods, clients, BUCKET, owner)
        Clients(report, binary, pods).run()
        with report.check(lake.name, "nodes", "have no secret in their logs"):
            logs = "".join(node.log.read_text(errors="replace") for node in cluster.nodes)
            shown = [each for each in ("eyJ", "SecretAccessKey", "ERROR", "panicked") if each in logs]
            expect(shown, [])
    exchange.run(report, lake, roles, issuer, binary, folder / "exchange")


class Clients:
    """What clients do, each in a process of its own with nothing but its environment."""

    def __init__(self, report: Report, binary: Path, pods: Pods) -> None:
        self._report, self._lake, self._binary, self._pods = report, pods.lake.name, binary, pods
        self._cluster, self._folder = pods.cluster, pods.folder

    def run(self) -> None:
        """Runs all of them."""
        container = self._pods.container("ETL")
        with self._report.check(self._lake, "aws-cli", "credential_process"):
            self._aws_cli()
        with self._report.check(self._lake, "boto3", "sidecar on loopback"):
            self._sidecar()
        with self._report.check(self._lake, "presigned URL", "of a role, at another node"):
            self._presigned()
        with self._report.check(self._lake, "two roles", "one may not read what is cached"):
            refused = self._python(READ, self._pods.container("BLIND"), BUCKET, HOT)
            expect(refused, "AccessDenied\n")
            expect(self._python(READ, container, BUCKET, HOT), f"{len(CONTENT)}\n")
        with self._report.check(self._lake, "token", "for another audience"):
            environment = self._pods.container("ETL", audience="another")
            refused = self._python(READ, environment, BUCKET, HOT)
            if "Error" not in refused and "Exception" not in refused:
                raise Difference(refused)
        with self._report.check(self._lake, "role", "that is not listed"):
            refused = self._python(READ, self._pods.container("OTHER"), BUCKET, HOT)
            if "does not list it" not in refused:
                raise Difference(refused)
        with self._report.check(self._lake, "restart of all nodes", "a client goes on with the key that it has"):
            self._restart()

    @staticmethod
    def _python(program: str, environment: dict[str, str], *arguments: str) -> str:
        command = [sys.executable, "-c", program, *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        return done.stdout + done.stderr

    def _aws_cli(self) -> None:
        process = [
            *(str(self._binary), "credentials", "--node", self._cluster.sts_url(1)),
            *("--role", self._pods.roles["ETL"], "--token-file", str(self._pods.token_file("ETL"))),
        ]
        configuration = self._folder / "aws-config"
        configuration.write_text(f"[default]\ncredential_process = {shlex.join(process)}\n")
        environment = {**self._pods.common(0), "AWS_CONFIG_FILE": str(configuration)}
        command = [Path(sys.executable).with_name("aws"), "s3", "ls", f"s3://{BUCKET}/{HOT}"]
        listed = run([str(part) for part in command], env=environment)
        expect(listed.split()[2:], [str(len(CONTENT)), HOT])

    def _sidecar(self) -> None:
        port = free_port()
        command = [
            *(self._binary, "credentials", "--node", self._cluster.sts_url(0), "--role", self._pods.roles["ETL"]),
            *("--token-file", self._pods.token_file("ETL"), "--listen", f"127.0.0.1:{port}"),
        ]
        sidecar = Process.listening(command, self._folder / "sidecar.log", port)
        try:
            url = f"http://127.0.0.1:{port}/"
            environment = {**self._pods.common(1), "AWS_CONTAINER_CREDENTIALS_FULL_URI": url}
            expect(self._python(READ, environment, BUCKET, HOT), f"{len(CONTENT)}\n")
            rebound = Request(url, headers={"Host": "evil.example.com"})
            try:
                with urlopen(rebound, timeout=10) as answer:
                    raise Difference(f"a page of another site got {answer.status}")
            except HTTPError as refusal:
                expect(refusal.code, 421)
        finally:
            sidecar.stop()

    def _presigned(self) -> None:
        client = self._pods.client(1)
        url = client.generate_presigned_url("get_object", Params={"Bucket": BUCKET, "Key": HOT})
        for _ in range(2):
            with urlopen(url, timeout=60) as answer:
                expect(len(answer.read()), len(CONTENT))

    def _restart(self) -> None:
        key = self._pods.key("ETL")
        expect(len(self._pods.client(0, key).get_object(Bucket=BUCKET, Key=HOT)["Body"].read()), len(CONTENT))
        self._cluster.stop()
        self._cluster.start()
        for node in range(len(self._cluster.nodes)):
            body = self._pods.client(node, key).get_object(Bucket=BUCKET, Key=HOT)["Body"]
            expect(len(body.read()), len(CONTENT))


if __name__ == "__main__":
    sys.exit(main())
