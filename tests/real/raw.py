"""Raw requests as Go's clients send them (minio-go, s5cmd, restic), at a lake and at nodes that write back.

The clients of this suite hide their requests, and not all of them send what others do.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from dataclasses import dataclass

from .lakes import Lake
from .report import Difference, Report, first_differences
from .store import content
from .wire import Answer, send

# Enough for an answer that MinIO compresses.
KEYS = 40
GZIP = {"Accept-Encoding": "gzip"}
PART_BYTES = 5 << 20


@dataclass(frozen=True)
class Side:
    """A bucket at a lake or at a node."""

    lake: Lake
    url: str
    bucket: str

    def send(
        self,
        method: str,
        key: str = "",
        *,
        query: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> Answer:
        """Sends one request as Go's HTTP client does, which accepts gzip in all of them."""
        more = {**GZIP, **(headers or {})}
        return send(self.url, self.lake.account, method, self.bucket, key, query=query, headers=more, body=body)


def bucket_of(age: str) -> str:
    """Returns the name of the bucket at the nodes."""
    return f"raw-{age}"


def compare(report: Report, lake: Lake, age: str, node_url: str) -> None:
    """Makes every check at the lake and at the node."""
    lakes = Side(lake, lake.url, "raw-lake")
    nodes = Side(lake, node_url, bucket_of(age))
    for side in (lakes, Side(lake, lake.url, nodes.bucket)):
        side.send("PUT")
    for check in (removal_of_many, completions, types_of_checksums, empty_conditions_of_removals):
        with report.check(lake.name, "raw", age, check.__name__.replace("_", " ")):
            differences = first_differences(check(lakes), check(nodes))
            if differences:
                raise Difference("; ".join(differences))


def removal_of_many(side: Side) -> dict[str, object]:
    """A listing and a DeleteObjects whose answers a lake compresses, if it is let."""
    keys = [f"many/{number:03d}" for number in range(KEYS)]
    for key in keys:
        side.send("PUT", key, body=b"x")
    document = "".join(f"<Object><Key>{key}</Key></Object>" for key in keys)
    body = f"<Delete><Quiet>true</Quiet>{document}</Delete>".encode()
    # Ceph 16 wants a digest.
    removed = side.send("POST", query={"delete": ""}, headers={"Content-MD5": md5_of(body)}, body=body)
    left = side.send("GET", query={"list-type": "2", "prefix": "many/"}, headers={"Accept-Encoding": "identity"})
    return {"status": removed.status, "left": re.findall(rb"<Key>", left.body)}


def completions(side: Side) -> dict[str, object]:
    """The checksum of an object in parts, named with the number of parts and without."""
    return {behind: completion(side, behind) for behind in ("", "-2", "-3")}


def completion(side: Side, behind: str) -> dict[str, object]:
    """Uploads two parts and completes them."""
    key, parts = f"parts{behind}", (content(PART_BYTES, seed=1), content(100, seed=2))
    begun = side.send("POST", key, query={"uploads": ""}, headers={"x-amz-checksum-algorithm": "CRC32"})
    upload = begun.body.decode().partition("<UploadId>")[2].partition("</UploadId>")[0]
    listed, digests = "", b""
    for number, body in enumerate(parts, start=1):
        digest = zlib.crc32(body).to_bytes(4)
        put = side.send(
            *("PUT", key),
            query={"partNumber": str(number), "uploadId": upload},
            headers={"x-amz-checksum-crc32": encoded(digest)},
            body=body,
        )
        listed += (
            f"<Part><PartNumber>{number}</PartNumber><ETag>{put.headers['etag']}</ETag>"
            f"<ChecksumCRC32>{encoded(digest)}</ChecksumCRC32></Part>"
        )
        digests += digest
    named = encoded(zlib.crc32(digests).to_bytes(4)) + behind
    page = f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>".encode()
    done = side.send("POST", key, query={"uploadId": upload}, headers={"x-amz-checksum-crc32": named}, body=page)
    # Lakes name the error of a wrong one differently, and Ceph 16 does not look.
    if behind == "-3" and not side.lake.knows_checksums:
        return {}
    return {"status": done.status}


def types_of_checksums(side: Side) -> dict[str, object]:
    """The type that stands beside the checksum of an object, in answers to its PUT and its HEAD."""
    if not side.lake.knows_checksums:
        return {}
    body = b"with a checksum"
    put = side.send("PUT", "typed", headers={"x-amz-checksum-crc32": encoded(zlib.crc32(body).to_bytes(4))}, body=body)
    head = side.send("HEAD", "typed", headers={"x-amz-checksum-mode": "ENABLED"})
    names = ("x-amz-checksum-crc32", "x-amz-checksum-type")
    return {name: [answer.headers.get(name) for answer in (put, head)] for name in names}


def empty_conditions_of_removals(side: Side) -> dict[str, object]:
    """DELETE with a condition that says nothing."""
    statuses: dict[str, object] = {}
    for name in ("If-Match", "x-amz-if-match-size", "x-amz-if-match-last-modified-time"):
        side.send("PUT", "removed", body=b"x")
        answers = side.send("DELETE", "removed", headers={name: ""}), side.send("HEAD", "removed")
        statuses[name] = [answer.status for answer in answers]
    return statuses


def encoded(digest: bytes) -> str:
    """Returns a digest in base 64, as headers hold it."""
    return base64.b64encode(digest).decode()


def md5_of(body: bytes) -> str:
    """Returns the value of `Content-MD5`."""
    return encoded(hashlib.md5(body, usedforsecurity=False).digest())
