"""Presigned URLs of the guest, for clients without any library."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass

from botocore.client import BaseClient
from real import aws
from real.report import Difference

from .lakes import CLOSED, SHARED
from .scene import Scene, content, expect, found, settled

SIZE = 3_000_000


@dataclass(frozen=True)
class _Answer:
    status: int
    body: bytes
    headers: Mapping[str, str]

    @property
    def found(self) -> str:
        return found(self.headers)


def run(scene: Scene) -> None:
    """Runs all checks."""
    body = content(SIZE, "presigned")
    scene.place.client().put_object(Bucket=SHARED, Key="presigned", Body=body)
    settled(scene.place.client(), SHARED, "presigned")
    # Version 2 is what boto3 chooses by itself in us-east-1, eu-west-1, us-west-2 and other old regions.
    for version, name in (("s3v4", "signed by version 4"), (None, "signed by version 2, which boto3 chooses")):
        words: list[tuple[str, str]] = []
        with scene.check("presigned GET", name):
            words = _get(scene, _url(_signer(scene, version), "get_object", SHARED, "presigned"), body)
        with scene.check("presigned GET", f"{name}, comes from the cache"):
            expect(words[-1:], [("REVALIDATED", "REVALIDATED")], f"X-Cache of object and range, last of {words}")
    with scene.check("presigned GET", "that has expired"):
        _expired(scene)
    with scene.check("presigned GET", "with another signature, key or expiry, of a cached object"):
        _forged(scene)
    with scene.check("presigned GET", "of an object of another user, which is cached"):
        _closed(scene)
    with scene.check("presigned PUT", "then a presigned GET"):
        _put(scene)


def _get(scene: Scene, url: str, body: bytes) -> list[tuple[str, str]]:
    """Reads by one URL; returns where an object and a range of it came from, each time."""
    words = []
    for _ in range(3):
        whole = _send(url)
        expect((whole.status, whole.body == body), (200, True), "whole")
        # Nobody has signed this header.
        part = _send(url, headers={"Range": "bytes=1000000-2099999"})
        expect((part.status, part.body == body[1_000_000:2_100_000]), (206, True), "a range")
        expect(part.headers.get("content-range"), f"bytes 1000000-2099999/{SIZE}")
        words.append((whole.found, part.found))
        scene.nodes[0].settle()
    etag = whole.headers["etag"]
    expect(_send(url, headers={"If-None-Match": etag}).status, 304, "If-None-Match, unsigned")
    expect(_send(url, headers={"If-Match": '"00000000000000000000000000000000"'}).status, 412, "If-Match, unsigned")
    expect(_send(url, headers={"If-Match": etag}).body == body, True, "If-Match with the ETag, unsigned")
    copied = _send(url, headers={"x-amz-copy-source": f"/{CLOSED}/secret"})
    expect(copied.status, 403, "x-amz-copy-source, unsigned")
    return words


def _expired(scene: Scene) -> None:
    client = _signer(scene)
    url = client.generate_presigned_url("get_object", Params={"Bucket": SHARED, "Key": "presigned"}, ExpiresIn=1)
    time.sleep(2.5)
    answer = _send(url)
    expect((answer.status, b"AccessDenied" in answer.body), (403, True), answer.body[:300].decode())


def _forged(scene: Scene) -> None:
    url = _url(_signer(scene), "get_object", SHARED, "presigned")
    expect(_send(url).status, 200)
    mark = "X-Amz-Signature="
    head, _, signature = url.partition(mark)
    other = "0" if signature[0] != "0" else "1"
    for what, forged in (
        ("signature", head + mark + other + signature[1:]),
        ("expiry", url.replace("X-Amz-Expires=3600", "X-Amz-Expires=7200")),
        ("key", url.replace(scene.place.guest.access_key, "nobody-at-all")),
        ("object", url.replace("/presigned?", "/guarded?")),
    ):
        if forged == url:
            raise Difference(f"nothing was changed: {what}")
        expect(_send(forged).status, 403, f"another {what}")


def _closed(scene: Scene) -> None:
    answer = _send(_url(_signer(scene), "get_object", CLOSED, "secret"))
    expect((answer.status, b"AccessDenied" in answer.body), (403, True), answer.body[:300].decode())


def _put(scene: Scene) -> None:
    client = _signer(scene)
    body = content(SIZE, "put")
    expect(_send(_url(client, "put_object", SHARED, "presigned-put"), "PUT", body).status, 200)
    stored = scene.place.client().get_object(Bucket=SHARED, Key="presigned-put")["Body"].read()
    expect(stored == body, True, "bytes at the lake")
    settled(scene.place.client(), SHARED, "presigned-put")
    for _ in range(2):
        got = _send(_url(client, "get_object", SHARED, "presigned-put"))
        expect((got.status, got.body == body), (200, True))
        scene.nodes[0].settle()
    expect(got.found, "REVALIDATED", "second read")


def _signer(scene: Scene, version: str | None = "s3v4") -> BaseClient:
    return aws.client(
        "s3",
        scene.nodes[0].url,
        scene.place.guest,
        signature_version=version,
        s3={"addressing_style": "path"},
        request_checksum_calculation="when_supported",
    )


def _url(client: BaseClient, operation: str, bucket: str, key: str) -> str:
    url: str = client.generate_presigned_url(operation, Params={"Bucket": bucket, "Key": key}, ExpiresIn=3600)
    return url


def _send(
    url: str, method: str = "GET", body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> _Answer:
    request = urllib.request.Request(url, data=body, method=method, headers=dict(headers or {}))
    if body is not None:
        # What urllib would say otherwise is covered by no signature, but by that of version 2.
        request.add_header("Content-Type", "")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return _Answer(answer.status, answer.read(), _lower(answer.headers))
    except urllib.error.HTTPError as refusal:
        return _Answer(refusal.code, refusal.read(), _lower(refusal.headers))


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
