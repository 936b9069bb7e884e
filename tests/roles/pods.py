"""Pods: clients with the token of a service account, which get their keys from nodes."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote
from urllib.request import Request, urlopen

from botocore.client import BaseClient
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate, serialize_java_truststore
from real import aws
from real.certificates import Certificate
from real.lakes import REGION, Account, Lake

from .cluster import Cluster
from .issuer import Issuer
from .lakes import Roles


@dataclass(frozen=True)
class Pods:
    """The environments of pods; `certificate` is that with which the last node gives keys."""

    lake: Lake
    cluster: Cluster
    issuer: Issuer
    roles: Roles
    folder: Path
    certificate: Certificate

    def common(self, node: int) -> dict[str, str]:
        """Returns what each client of this node needs, whatever its key."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
            # Without it the newest SDKs send what an old Ceph does not know.
            "AWS_REQUEST_CHECKSUM_CALCULATION": "WHEN_SUPPORTED" if self.lake.knows_checksums else "WHEN_REQUIRED",
            "AWS_ENDPOINT_URL_S3": self.cluster.nodes[node].url,
        }

    def container(self, role: str, audience: str | None = None) -> dict[str, str]:
        """Returns the environment of a pod that gets its key from the first node and works at the second."""
        url = f"{self.cluster.sts_url(0)}/v1/credentials?role={quote(self.roles[role], safe='')}"
        return {
            **self.common(1),
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": url,
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(self.token_file(role, audience)),
        }

    def sts(self, role: str) -> dict[str, str]:
        """Returns the environment of a pod with the variables of IRSA, and the address of STS, which speaks TLS."""
        return {
            **self.common(0),
            **self._trust(),
            "AWS_ENDPOINT_URL_STS": self.cluster.sts_url(2),
            "AWS_ROLE_ARN": self.roles[role],
            "AWS_WEB_IDENTITY_TOKEN_FILE": str(self.token_file(role)),
        }

    def session(self, role: str) -> dict[str, str]:
        """Returns the environment of a client that has got its key from somebody else."""
        return {**self.common(2), **aws.variables(self.key(role))}

    def key(self, role: str) -> Account:
        """Returns a key, as a client of the first node gets it."""
        url = self.container(role)["AWS_CONTAINER_CREDENTIALS_FULL_URI"]
        request = Request(url, headers={"Authorization": self.token_file(role).read_text()})
        with urlopen(request, timeout=60) as answer:
            return aws.account_of(json.load(answer))

    def client(self, node: int, key: Account | None = None) -> BaseClient:
        """Returns a client of a node in this process, with this key or a new one."""
        return aws.client("s3", self.cluster.nodes[node].url, key or self.key("ETL"), signature_version="s3v4")

    def token_file(self, role: str, audience: str | None = None) -> Path:
        """Returns a file with the token of a service account."""
        path = self.folder / f"token-{role}-{audience}"
        path.write_text(self.issuer.token("system:serviceaccount:ns:etl", audience or role))
        return path

    def _trust(self) -> dict[str, str]:
        """Returns the variables that name the trusted authority to SDKs, to Rust and to Java."""
        file, password = self.folder / "authority.p12", "not a secret"
        authority = x509.load_pem_x509_certificate(self.certificate.authority.read_bytes())
        protection = BestAvailableEncryption(password.encode())
        file.write_bytes(serialize_java_truststore([PKCS12Certificate(authority, b"authority")], protection))
        return {
            "AWS_CA_BUNDLE": str(self.certificate.authority),
            "SSL_CERT_FILE": str(self.certificate.authority),
            "JAVA_TOOL_OPTIONS": f"-Djavax.net.ssl.trustStore={file} '-Djavax.net.ssl.trustStorePassword={password}'",
        }
