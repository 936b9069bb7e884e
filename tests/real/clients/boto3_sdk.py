"""boto3: the SDK most scripts use, with the checksums and payload modes of its defaults."""

from __future__ import annotations

import base64
import io
import threading
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError

from ..lakes import REGION
from ..report import Difference
from ..store import Store, content, digest
from ..wire import VOLATILE_HEADERS

MIB = 1 << 20


def client(store: Store, url: str | None = None, signature: str | None = None) -> Any:
    """An S3 client without retries: a retry would hide an error that the node made."""
    return boto3.client(
        "s3",
        endpoint_url=url or store.url,
        aws_access_key_id=store.account.access_key,
        aws_secret_access_key=store.account.secret_key,
        region_name=REGION,
        config=Config(
            signature_version=signature,
            retries={"total_max_attempts": 1},
            connect_timeout=5,
            read_timeout=30,
            s3={"addressing_style": "path"},
        ),
    )


def headers(response: dict[str, Any]) -> dict[str, str]:
    """Returns the headers that must be the same from every server: all but its own times and versions."""
    unstable = VOLATILE_HEADERS | {"last-modified", "x-amz-version-id"}
    return {name: value for name, value in response["ResponseMetadata"]["HTTPHeaders"].items() if name not in unstable}


def outcome(call: Callable[..., object], **parameters: object) -> str:
    """`ok`, or status and code of the error."""
    try:
        call(**parameters)
    except ClientError as error:
        return f"{error.response['ResponseMetadata']['HTTPStatusCode']} {error.response['Error']['Code']}"
    return "ok"


def put_get_head(store: Store) -> dict[str, object]:
    """Objects of several sizes come back as they were put, twice."""
    s3 = client(store)
    seen: dict[str, object] = {}
    for size in (0, 1, 4 * MIB - 1, 4 * MIB, 4 * MIB + 1):
        key = f"put/{size}"
        put = s3.put_object(Bucket=store.bucket, Key=key, Body=content(size))
        head = s3.head_object(Bucket=store.bucket, Key=key)
        seen[key] = [put.get("ETag"), headers(head)]
        for reading in ("first", "second"):
            answer = s3.get_object(Bucket=store.bucket, Key=key)
            body = answer["Body"].read()
            if body != content(size):
                raise Difference(f"{reading} reading of {key}: {digest(body)} instead of {digest(content(size))}")
            seen[f"{key} {reading}"] = headers(answer)
    return seen


def metadata(store: Store) -> dict[str, object]:
    """System headers and user metadata are kept."""
    s3 = client(store)
    s3.put_object(
        Bucket=store.bucket,
        Key="metadata",
        Body=b"told",
        CacheControl="max-age=60",
        ContentDisposition='attachment; filename="a b.txt"',
        ContentEncoding="identity",
        ContentLanguage="de-DE",
        ContentType="text/x-told; charset=utf-8",
        Metadata={"colour": "blue", "Mixed-Case": "Kept As Is", "spaces": "a  b", "empty": ""},
    )
    answers = [s3.get_object(Bucket=store.bucket, Key="metadata") for _ in range(2)]
    return {
        "gets": [{**headers(answer), "metadata": answer["Metadata"]} for answer in answers],
        "head": headers(s3.head_object(Bucket=store.bucket, Key="metadata")),
    }


def ranges(store: Store) -> dict[str, object]:
    """Ranges of every form, before and after the whole object was read."""
    s3, data = client(store), content(9 * MIB, seed=1)
    s3.put_object(Bucket=store.bucket, Key="ranges", Body=data)
    asked = (
        "bytes=0-0",
        "bytes=4194303-4194304",
        "bytes=8388608-",
        "bytes=-7",
        "bytes=9000000-99999999",
        "bytes=99999999-",
    )
    seen: dict[str, object] = {}
    for reading in ("cold", "warm"):
        for text in asked:
            seen[f"{reading} {text}"] = outcome_of_range(s3, store, text)
        s3.get_object(Bucket=store.bucket, Key="ranges")["Body"].read()
    return seen


def outcome_of_range(s3: Any, store: Store, text: str) -> object:
    """Returns the outcome of one ranged GET."""
    try:
        answer = s3.get_object(Bucket=store.bucket, Key="ranges", Range=text)
    except ClientError as error:
        return error.response["Error"]["Code"]
    return [answer["ContentRange"], digest(answer["Body"].read())]


def conditions(store: Store) -> dict[str, object]:
    """If-Match, If-None-Match and conditional writes."""
    s3 = client(store)
    etag = s3.put_object(Bucket=store.bucket, Key="conditions", Body=b"one")["ETag"]
    at = {"Bucket": store.bucket, "Key": "conditions"}
    s3.get_object(**at)["Body"].read()
    return {
        "match": outcome(s3.get_object, **at, IfMatch=etag),
        "match unquoted": outcome(s3.get_object, **at, IfMatch=etag.strip('"')),
        "match other": outcome(s3.get_object, **at, IfMatch='"00000000000000000000000000000000"'),
        "none match": outcome(s3.get_object, **at, IfNoneMatch=etag),
        "none match head": outcome(s3.head_object, **at, IfNoneMatch=etag),
        "none match other": outcome(s3.get_object, **at, IfNoneMatch='"0"'),
        "create only": outcome(s3.put_object, **at, Body=b"two", IfNoneMatch="*"),
        "replace other": outcome(s3.put_object, **at, Body=b"two", IfMatch='"00000000000000000000000000000000"'),
        "still": s3.get_object(**at)["Body"].read().decode(),
    }


def multipart(store: Store) -> dict[str, object]:
    """Parts by hand, listed, completed, read back whole and by part; another upload aborted."""
    s3, at = client(store), {"Bucket": store.bucket, "Key": "multipart"}
    upload = s3.create_multipart_upload(**at, Metadata={"made": "of parts"})["UploadId"]
    data = [content(5 * MIB, seed=2), content(5 * MIB, seed=3), content(17, seed=4)]
    etags = [
        s3.upload_part(**at, UploadId=upload, PartNumber=number, Body=body)["ETag"]
        for number, body in enumerate(data, start=1)
    ]
    listed = s3.list_parts(**at, UploadId=upload)["Parts"]
    parts = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(etags, start=1)]
    done = s3.complete_multipart_upload(**at, UploadId=upload, MultipartUpload={"Parts": parts})
    answers = [s3.get_object(**at) for _ in range(2)]
    if any(answer["Body"].read() != b"".join(data) for answer in answers):
        raise Difference("the completed object is not its parts")
    other = s3.create_multipart_upload(Bucket=store.bucket, Key="aborted")["UploadId"]
    s3.abort_multipart_upload(Bucket=store.bucket, Key="aborted", UploadId=other)
    return {
        "etags": etags,
        "listed": [(part["PartNumber"], part["Size"]) for part in listed],
        "etag": done.get("ETag"),
        "gets": [headers(answer) for answer in answers],
        "abort": outcome(s3.list_parts, Bucket=store.bucket, Key="aborted", UploadId=other),
        "second part": outcome(s3.head_object, **at, PartNumber=2),
    }


def transfer(store: Store) -> dict[str, object]:
    """The transfer manager: concurrent parts up, concurrent ranges down."""
    s3, data = client(store), content(20 * MIB, seed=5)
    parts = TransferConfig(multipart_threshold=5 * MIB, multipart_chunksize=5 * MIB, max_concurrency=4)
    s3.upload_fileobj(io.BytesIO(data), store.bucket, "transfer", Config=parts)
    for _ in range(2):
        back = io.BytesIO()
        s3.download_fileobj(store.bucket, "transfer", back, Config=parts)
        if back.getvalue() != data:
            raise Difference("the download is not the upload")
    return {"head": headers(s3.head_object(Bucket=store.bucket, Key="transfer"))}


def presigned(store: Store) -> dict[str, object]:
    """URLs that carry their signature: PUT, GET, GET with overrides, and one that was tampered with."""
    return use_presigned(client(store, signature="s3v4"), store, "presigned/ü b+c")


def use_presigned(s3: Any, store: Store, key: str) -> dict[str, object]:
    """Uses URLs as a browser would; raises when the plain ones do not work."""
    at = {"Bucket": store.bucket, "Key": key}
    put = s3.generate_presigned_url("put_object", Params=at, ExpiresIn=300)
    get = s3.generate_presigned_url("get_object", Params=at, ExpiresIn=300)
    named = s3.generate_presigned_url(
        "get_object", Params={**at, "ResponseContentDisposition": 'attachment; filename="x"'}, ExpiresIn=300
    )
    stored, read = fetch(put, "PUT", b"signed in the query"), fetch(get)
    if (stored[0], read[0]) != (200, 200):
        raise Difference(f"presigned PUT and GET: {stored}, {read}")
    return {
        "gets": [read, fetch(get)],
        "named": fetch(named),
        "range": fetch(get, headers={"Range": "bytes=7-8"}),
        "head as get": fetch(get, "HEAD"),
        "tampered": fetch(get.replace("Signature=", "Signature=0")),
    }


def fetch(
    url: str, method: str = "GET", body: bytes | None = None, headers: dict[str, str] | None = None
) -> list[object]:
    """Status, body and the header that overrides change."""
    request = urllib.request.Request(url, data=body, method=method, headers={"Content-Type": "", **(headers or {})})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return [answer.status, answer.read().decode(), answer.headers.get("Content-Disposition")]
    except urllib.error.HTTPError as error:
        return [error.code]


def copies(store: Store) -> dict[str, object]:
    """Copies with kept and replaced metadata, and a part copied from a range."""
    s3, source = client(store), {"Bucket": store.bucket, "Key": "copy/source é"}
    s3.put_object(**source, Body=content(6 * MIB, seed=6), Metadata={"from": "source"})
    s3.copy_object(Bucket=store.bucket, Key="copy/kept", CopySource=source)
    s3.copy_object(
        Bucket=store.bucket,
        Key="copy/replaced",
        CopySource=source,
        MetadataDirective="REPLACE",
        Metadata={"to": "copy"},
    )
    at = {"Bucket": store.bucket, "Key": "copy/parts"}
    upload = s3.create_multipart_upload(**at)["UploadId"]
    part = s3.upload_part_copy(
        **at, UploadId=upload, PartNumber=1, CopySource=source, CopySourceRange=f"bytes=1-{5 * MIB}"
    )["CopyPartResult"]["ETag"]
    s3.complete_multipart_upload(**at, UploadId=upload, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part}]})
    seen: dict[str, object] = {}
    for name in ("kept", "replaced", "parts"):
        answer = s3.get_object(Bucket=store.bucket, Key=f"copy/{name}")
        seen[name] = [headers(answer), digest(answer["Body"].read())]
    missing = {**source, "Key": "copy/absent"}
    seen["missing"] = outcome(s3.copy_object, Bucket=store.bucket, Key="copy/x", CopySource=missing)
    return seen


def listings(store: Store) -> dict[str, object]:
    """List version 1 and 2, prefixes, delimiters, pages."""
    s3 = client(store)
    for name in ("a", "b/1", "b/2", "c d", "é"):
        s3.put_object(Bucket=store.bucket, Key=f"list/{name}", Body=name.encode())
    at = {"Bucket": store.bucket, "Prefix": "list/"}
    pages = s3.get_paginator("list_objects_v2").paginate(**at, PaginationConfig={"PageSize": 2})
    delimited = s3.list_objects_v2(**at, Delimiter="/")
    return {
        "v1": [(entry["Key"], entry["Size"], entry["ETag"]) for entry in s3.list_objects(**at)["Contents"]],
        "pages": [[entry["Key"] for entry in page["Contents"]] for page in pages],
        "keys": [entry["Key"] for entry in delimited["Contents"]],
        "prefixes": delimited["CommonPrefixes"],
    }


def deletes(store: Store) -> dict[str, object]:
    """A deleted object is gone at once, also after it was cached."""
    s3 = client(store)
    for name in ("one", "two", "three"):
        s3.put_object(Bucket=store.bucket, Key=f"delete/{name}", Body=name.encode())
        s3.get_object(Bucket=store.bucket, Key=f"delete/{name}")["Body"].read()
    s3.delete_object(Bucket=store.bucket, Key="delete/one")
    many = s3.delete_objects(
        Bucket=store.bucket, Delete={"Objects": [{"Key": f"delete/{name}"} for name in ("two", "three", "absent")]}
    )
    return {
        "deleted": sorted(entry["Key"] for entry in many["Deleted"]),
        "gets": [outcome(s3.get_object, Bucket=store.bucket, Key=f"delete/{name}") for name in ("one", "two")],
        "head": outcome(s3.head_object, Bucket=store.bucket, Key="delete/three"),
    }


def overwrites(store: Store) -> dict[str, object]:
    """A reader sees the last write at once, whether it went through the node or another way."""
    s3, past = client(store), client(store, store.others_url)
    at = {"Bucket": store.bucket, "Key": "overwritten"}
    for writer, body in ((s3, b"first"), (s3, b"second"), (past, b"third, past the node"), (s3, b"fourth")):
        writer.put_object(**at, Body=body)
        for _ in range(2):
            read = s3.get_object(**at)["Body"].read()
            if read != body:
                raise Difference(f"read {read!r} after {body!r} was written")
    past.delete_object(**at)
    return {"deleted past the node": outcome(s3.get_object, **at)}


def other_metadata_on_the_same_bytes(store: Store) -> dict[str, object]:
    """An object that is replaced by one with the same bytes, so the same ETag, but other headers."""
    s3, past = client(store), client(store, store.others_url)
    at = {"Bucket": store.bucket, "Key": "same bytes"}

    def told() -> list[str]:
        # A HEAD between them could refresh the node's knowledge of the object.
        answers = (s3.get_object(**at), s3.get_object(**at))
        return [f"{answer['ContentType']} {answer['Metadata']}" for answer in answers]

    s3.put_object(**at, Body=b"same", ContentType="text/one", Metadata={"n": "1"})
    seen: dict[str, object] = {"put": told()}
    s3.put_object(**at, Body=b"same", ContentType="text/two", Metadata={"n": "2"})
    seen["put again"] = told()
    s3.copy_object(**at, CopySource=at, MetadataDirective="REPLACE", ContentType="text/three", Metadata={"n": "3"})
    seen["copied onto itself"] = told()
    past.put_object(**at, Body=b"same", ContentType="text/four", Metadata={"n": "4"})
    seen["put past the node"] = told()
    return seen


def checksums(store: Store) -> dict[str, object]:
    """Sends, stores and reads every checksum algorithm of the SDK; the server refuses a wrong checksum."""
    s3, data = client(store), content(100_000, seed=7)
    seen: dict[str, object] = {}
    for algorithm in ("CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"):
        at = {"Bucket": store.bucket, "Key": f"checksum/{algorithm}"}
        put = outcome(s3.put_object, **at, Body=io.BytesIO(data), ChecksumAlgorithm=algorithm)
        if put != "ok":
            seen[algorithm] = put
            continue
        answers = [s3.get_object(**at, ChecksumMode="ENABLED") for _ in range(2)]
        seen[algorithm] = [[headers(answer), digest(answer["Body"].read())] for answer in answers]
    wrong = base64.b64encode((zlib.crc32(data) ^ 1).to_bytes(4)).decode()
    at = {"Bucket": store.bucket, "Key": "checksum/wrong"}
    refused = outcome(s3.put_object, **at, Body=data, ChecksumCRC32=wrong)
    # A lake that does not look is no reason for the node to be careless.
    if store.knows_checksums:
        seen["wrong"] = [refused, outcome(s3.head_object, **at)]
    return seen


def versions(store: Store) -> dict[str, object]:
    """Versions by id, delete markers, and a version brought back."""
    s3, at = client(store), {"Bucket": f"{store.bucket}-versions", "Key": "versioned"}
    s3.create_bucket(Bucket=at["Bucket"])
    s3.put_bucket_versioning(Bucket=at["Bucket"], VersioningConfiguration={"Status": "Enabled"})
    ids = [s3.put_object(**at, Body=body)["VersionId"] for body in (b"old", b"new")]

    def read(**version: str) -> str:
        answer = s3.get_object(**at, **version)
        expected = version.get("VersionId", ids[-1])
        return f"{answer['Body'].read().decode()} {answer['VersionId'] == expected}"

    seen: dict[str, object] = {"current": [read(), read()], "old": [read(VersionId=ids[0]) for _ in range(2)]}
    marker = s3.delete_object(**at)["VersionId"]
    seen["deleted"] = [outcome(s3.get_object, **at), outcome(s3.head_object, **at)]
    seen["old after delete"] = read(VersionId=ids[0])
    s3.delete_object(**at, VersionId=marker)
    seen["brought back"] = read()
    s3.delete_object(**at, VersionId=ids[1])
    ids.pop()
    seen["older is current"] = read()
    listed = s3.list_object_versions(Bucket=at["Bucket"])
    seen["listed"] = [entry["IsLatest"] for entry in listed["Versions"]]
    seen["unknown id"] = outcome(s3.get_object, **at, VersionId="00000000000000000000000000000000")
    return seen


def sub_resources(store: Store) -> dict[str, object]:
    """Operations the node does not know pass through it."""
    s3, at = client(store), {"Bucket": store.bucket, "Key": "tagged"}
    s3.put_object(**at, Body=b"x", Tagging="a=1&b=2")
    return {
        "tags": outcome(s3.get_object_tagging, **at),
        "retag": outcome(s3.put_object_tagging, **at, Tagging={"TagSet": [{"Key": "c", "Value": "ü"}]}),
        "acl": outcome(s3.get_object_acl, **at),
        "attributes": outcome(s3.get_object_attributes, **at, ObjectAttributes=["ETag", "ObjectSize"]),
        "location": outcome(s3.get_bucket_location, Bucket=store.bucket),
        "uploads": outcome(s3.list_multipart_uploads, Bucket=store.bucket),
        "lifecycle": outcome(s3.get_bucket_lifecycle_configuration, Bucket=store.bucket),
        "no bucket": outcome(s3.get_object, Bucket=f"{store.bucket}-absent", Key="x"),
        "no key": outcome(s3.get_object, Bucket=store.bucket, Key="absent"),
    }


def many_readers(store: Store) -> dict[str, object]:
    """Sixteen readers of one new object at once all get it whole."""
    data, gate = content(12 * MIB, seed=8), threading.Barrier(16)
    client(store).put_object(Bucket=store.bucket, Key="shared", Body=data)

    def read(s3: Any) -> str:
        gate.wait(30)
        return digest(s3.get_object(Bucket=store.bucket, Key="shared")["Body"].read())

    clients = [client(store) for _ in range(16)]
    with ThreadPoolExecutor(16) as pool:
        return {"read": sorted(set(pool.map(read, clients)))}


def an_abandoned_read(store: Store) -> dict[str, object]:
    """A reader that stops in the middle leaves the object readable for the next."""
    s3, data = client(store), content(24 * MIB, seed=9)
    at = {"Bucket": store.bucket, "Key": "abandoned"}
    s3.put_object(**at, Body=data)
    body = s3.get_object(**at)["Body"]
    started = body.read(70_000) == data[:70_000]
    body.close()
    time.sleep(0.1)
    return {"started": started, "whole": digest(s3.get_object(**at)["Body"].read())}


CHECKS = (
    put_get_head,
    metadata,
    ranges,
    conditions,
    multipart,
    transfer,
    presigned,
    copies,
    listings,
    deletes,
    overwrites,
    other_metadata_on_the_same_bytes,
    checksums,
    versions,
    sub_resources,
    many_readers,
    an_abandoned_read,
)
