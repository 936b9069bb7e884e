"""Clients that use the lake's own name: with a node as their forward proxy, and with a name that leads to a node.

The name is in a private /etc/hosts of each process, in a mount namespace that ends with it.
"""

from __future__ import annotations

import http.client
import os
import shutil
import subprocess
import sys
from pathlib import Path

from cryptography import x509
from real.certificates import certify
from real.node import Node
from real.processes import answers
from real.report import Difference

from .cluster import stranger_to_all
from .lakes import CLOSED, NAME, SHARED
from .scene import Scene, content, ended, expect

LAKE_ADDRESS, NODE_ADDRESS = "127.0.0.1", "127.0.0.2"

# A client that knows its environment only; the file has the bytes.
CLIENT = """
import boto3, botocore, sys, time
from email.utils import parsedate_to_datetime
from botocore.config import Config
style, bucket, key, file, closed = sys.argv[1:]
s3 = boto3.client("s3", config=Config(s3={"addressing_style": style}))
with open(file, "rb") as source:
    body = source.read()
s3.put_object(Bucket=bucket, Key=key, Body=body)
while True:
    head = s3.head_object(Bucket=bucket, Key=key)
    if parsedate_to_datetime(head["ResponseMetadata"]["HTTPHeaders"]["date"]) > head["LastModified"]:
        break
    time.sleep(0.1)
for _ in range(3):
    answer = s3.get_object(Bucket=bucket, Key=key)
    is_right = answer["Body"].read() == body
    print(answer["ResponseMetadata"]["HTTPHeaders"].get("x-cache"), is_right)
part = s3.get_object(Bucket=bucket, Key=key, Range="bytes=1000-1999999")
print(part["ResponseMetadata"]["HTTPHeaders"].get("x-cache"), part["Body"].read() == body[1000:2000000])
try:
    s3.get_object(Bucket=closed, Key="secret")
except botocore.exceptions.ClientError as error:
    print(error.response["Error"]["Code"])
"""
EXPECTED = "MISS True\n" + "REVALIDATED True\n" * 3 + "AccessDenied\n"


# The least request that looks signed.
LOOPED = """
import sys, urllib.error, urllib.request
query = "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=nobody/20260101/us-east-1/s3/aws4_request"
query += "&X-Amz-Date=20260101T000000Z&X-Amz-Expires=60&X-Amz-SignedHeaders=host&X-Amz-Signature=" + 64 * "0"
try:
    urllib.request.urlopen(sys.argv[1] + "?" + query, timeout=30)
except urllib.error.HTTPError as refusal:
    print(refusal.code, refusal.read().decode())
"""


def run(scene: Scene) -> None:
    """Runs all checks."""
    try:
        to_lake = _resolving(scene.folder / "hosts-of-nodes", LAKE_ADDRESS)
        to_node = _resolving(scene.folder / "hosts-of-clients", NODE_ADDRESS)
    except OSError as reason:
        for part in ("forward proxy", "the lake's name"):
            scene.skip(part, str(reason))
        return
    with _node(scene, "proxy", to_lake) as node:
        with scene.check("forward proxy", "boto3, path style"):
            # The client resolves no name: only the proxy does.
            environment = {**scene.environment(scene.place.named_url), "HTTP_PROXY": node.url, "http_proxy": node.url}
            _client(scene, [], environment, "path", "proxied")
        with scene.check("forward proxy", "boto3, virtual-host style"):
            _client(scene, [], environment, "virtual", "proxied-virtual")
        with scene.check("forward proxy", "for no other host, and no tunnel"):
            _other_hosts(scene, node)
    try:
        certificate = certify(scene.folder / "tls", x509.DNSName(NAME), x509.DNSName(f"*.{NAME}"))
    except OSError as reason:
        scene.skip("the lake's name", str(reason))
        return
    tls = {"SHOAL_S3_TLS_CERT": str(certificate.chain), "SHOAL_S3_TLS_KEY": str(certificate.key)}
    with _node(scene, "tls", to_lake, address=NODE_ADDRESS, s3_port=scene.place.port, environment=tls):
        for style in ("path", "virtual"):
            with scene.check("the lake's name", f"leads to a node with TLS, {style} style"):
                url = scene.place.named_url.replace("http:", "https:")
                environment = {**scene.environment(url), "AWS_CA_BUNDLE": str(certificate.authority)}
                _client(scene, to_node, environment, style, f"tls-{style}")
    with scene.check("the lake's name", "that leads a node to itself ends with 502"):
        _loop(scene, to_node)


def _client(scene: Scene, within: list[str], environment: dict[str, str], style: str, key: str) -> None:
    file = scene.folder / f"bytes-of-{key}"
    file.write_bytes(content(2_500_000, key))
    output = ended([*within, sys.executable, "-c", CLIENT, style, SHARED, key, str(file), CLOSED], environment)
    if output != EXPECTED:
        raise Difference(f"expected {EXPECTED!r}, found:\n{output[-1500:]}")
    stored = scene.place.client().get_object(Bucket=SHARED, Key=key)["Body"].read()
    expect(stored == file.read_bytes(), True, "bytes at the lake")


def _loop(scene: Scene, to_node: list[str]) -> None:
    """Has a node resolve the lake's name as its clients do."""
    address = {"address": NODE_ADDRESS, "s3_port": scene.place.port}
    with _node(scene, "loop", to_node, kind=_Listening, **address) as node:
        output = ended([sys.executable, "-c", LOOPED, f"{node.url}/{SHARED}/presigned"], scene.environment())
        expect("502" in output and "leads back" in output, True, output)


class _Listening(Node):
    """A node that takes requests, though it is not ready: its lake does not answer as one."""

    def _ready(self) -> bool:
        return answers(self.s3_port, self.address)


def _other_hosts(scene: Scene, node: Node) -> None:
    for method, target, status in (
        ("GET", f"http://other.test:{scene.place.port}/{SHARED}/proxied", 403),
        ("GET", f"http://{NAME}.other.test/{SHARED}/proxied", 403),
        ("CONNECT", f"{NAME}:{scene.place.port}", 400),
        ("CONNECT", "other.test:443", 400),
    ):
        connection = http.client.HTTPConnection(node.address, node.s3_port, timeout=20)
        try:
            connection.putrequest(method, target, skip_host=True)
            connection.putheader("Host", target.split("/")[2] if "/" in target else target)
            connection.endheaders()
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace")
            expect(answer.status, status, f"{method} {target}: {text[:200]}")
        finally:
            connection.close()


def _node(scene: Scene, name: str, within: list[str], **settings: object) -> Node:
    """Returns a node that knows the lake by its name."""
    place = scene.place
    return stranger_to_all(
        scene.binary, scene.folder, place.lake, name, lake_url=place.named_url, within=within, **settings
    )


def _resolving(hosts: Path, address: str) -> list[str]:
    """Returns the prefix of a command for which the lake's names are those of `address`.

    Raises `OSError` where this machine does not allow it.
    """
    hosts.write_text(f"127.0.0.1 localhost\n{address} {NAME} {SHARED}.{NAME} {CLOSED}.{NAME}\n")
    unshare = shutil.which("unshare")
    if unshare is None:
        raise OSError("unshare is not installed (Debian: util-linux)")
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    script = 'mount --bind "$0" /etc/hosts && exec "$@"'
    prefix = [unshare, *user, "--mount", "sh", "-c", script, str(hosts)]
    tried = subprocess.run([*prefix, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        raise OSError(f"a private /etc/hosts needs a mount namespace: {tried.stderr.strip()}")
    return prefix
