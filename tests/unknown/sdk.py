"""boto3 and aws-cli as the guest, at the nodes' own addresses."""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from pathlib import Path

from boto3.s3.transfer import TransferConfig
from botocore.client import BaseClient
from botocore.exceptions import ClientError
from real.lakes import Account
from real.report import Difference, Skip

from .cluster import stranger_to_all
from .lakes import CLOSED, SHARED
from .scene import Read, Scene, content, ended, expect, read, refusal, settled

MIB = 1024 * 1024
# Five blocks, and a bit of a sixth.
SIZE = 5 * MIB + 1234
PARTS = TransferConfig(multipart_threshold=5 * MIB, multipart_chunksize=5 * MIB, max_concurrency=4)


def run(scene: Scene) -> None:
    """Runs all checks."""
    with scene.check("boto3", "put, get, head, list, delete"):
        _objects(scene)
    with scene.check("boto3", "the same object at all nodes, once from the lake"):
        _all_nodes(scene)
    with scene.check("boto3", "ranges, cold and warm"):
        _ranges(scene)
    with scene.check("boto3", "upload and download in parts"):
        _parts(scene)
    with scene.check("wrong secret", "is refused, cold and warm"):
        _wrong_secret(scene)
    with scene.check("object of another user", "is refused, cold and warm"):
        _closed(scene)
    with scene.check("conditions", "If-Match, signed, on a cached object"):
        _if_match(scene)
    with scene.check("conditions", "If-None-Match, signed, on a cached object"):
        _if_none_match(scene)
    with scene.check("metadata", "replaced at the lake by a copy onto itself"):
        _metadata(scene)
    with scene.check("new version", "put at the lake, is the next one read"):
        _overwritten(scene)
    with scene.check("temporary key", "that no node has seen"):
        _temporary_key(scene)
    with scene.check("aws-cli", "copies 20 MB up and down"):
        _aws_cli(scene)
    with scene.check("node without an account", "keeps what is read whole"):
        _no_account(scene)
    with scene.check("bucket of the guest", "that the account of the nodes may not read"):
        _bucket_of_guest(scene)
    with scene.check("bucket of the guest", "an object of which a node has one block"):
        _partly_cached(scene)


def _objects(scene: Scene) -> None:
    first, second = scene.client(0), scene.client(1)
    body = content(SIZE, "objects")
    etag = first.put_object(Bucket=SHARED, Key="dir/an object+%", Body=body, Metadata={"colour": "blue"})["ETag"]
    for client in (first, second):
        head = client.head_object(Bucket=SHARED, Key="dir/an object+%")
        expect((head["ETag"], head["ContentLength"], head["Metadata"]), (etag, SIZE, {"colour": "blue"}))
        listed = client.list_objects_v2(Bucket=SHARED, Prefix="dir/")["Contents"]
        expect([(each["Key"], each["ETag"]) for each in listed], [("dir/an object+%", etag)])
        got = client.get_object(Bucket=SHARED, Key="dir/an object+%")
        expect((got["ETag"], got["Body"].read() == body, got["Metadata"]), (etag, True, {"colour": "blue"}))
    second.delete_object(Bucket=SHARED, Key="dir/an object+%")
    for client in (first, second):
        expect(refusal(lambda each=client: read(each, SHARED, "dir/an object+%")), (404, "NoSuchKey"))


def _all_nodes(scene: Scene) -> None:
    body = _put(scene, "everywhere")
    before, words = scene.cluster.lake_bytes(), []
    for node in range(len(scene.nodes)):
        for _ in range(2):
            got = read(scene.client(node), SHARED, "everywhere")
            expect(got.body == body, True, f"bytes of node {node + 1}")
            words.append(got.found)
            scene.nodes[node].settle()
    came = scene.cluster.lake_bytes() - before
    scene.note(f"X-Cache of two reads at each node: {', '.join(words)}; {came / SIZE:.3f} of the bytes from the lake")
    expect(words[0], "MISS", "first read")
    expect(words[1::2], ["REVALIDATED"] * len(scene.nodes), "second read at each node")
    expect(came <= 1.02 * SIZE, True, f"{came} bytes came from the lake for an object of {SIZE}")


def _ranges(scene: Scene) -> None:
    body = _put(scene, "ranges")
    client = scene.client(0)
    ranges = ["bytes=10-19", f"bytes={MIB - 5}-{2 * MIB + 5}", "bytes=-7", f"bytes={5 * MIB}-", "bytes=0-"]
    for _ in range(2):
        for each in ranges:
            first, last = each.removeprefix("bytes=").split("-")
            start = int(first) if first else SIZE - int(last)
            end = int(last) + 1 if first and last else SIZE
            got = read(client, SHARED, "ranges", Range=each)
            expect(got.body == body[start:end], True, f"bytes of {each}")
            expect(got.headers["content-range"], f"bytes {start}-{end - 1}/{SIZE}")
        expect(refusal(lambda: read(client, SHARED, "ranges", Range=f"bytes={SIZE}-")), (416, "InvalidRange"))
        scene.nodes[0].settle()
    expect(read(client, SHARED, "ranges", Range="bytes=10-19").found, "REVALIDATED", "a range that was read")


def _parts(scene: Scene) -> None:
    body = content(3 * SIZE, "parts")
    scene.client(0).upload_fileobj(io.BytesIO(body), SHARED, "parts", Config=PARTS)
    for node in (0, 1, 0):
        target = io.BytesIO()
        scene.client(node).download_fileobj(SHARED, "parts", target, Config=PARTS)
        expect(target.getvalue() == body, True, f"bytes of node {node + 1}")
        scene.nodes[node].settle()
    uploads = scene.place.client().list_multipart_uploads(Bucket=SHARED).get("Uploads", [])
    expect(uploads, [], "uploads left at the lake")


def _wrong_secret(scene: Scene) -> None:
    wrong_account = Account(scene.place.guest.access_key, "not the guest's secret")
    nobody = Account("nobody-at-all", "a secret of nobody")
    wrong = scene.client(0, wrong_account)
    scene.place.client().put_object(Bucket=SHARED, Key="guarded", Body=content(SIZE, "guarded"))
    settled(scene.place.client(), SHARED, "guarded")
    refused, unknown = _lake_refuses(scene, wrong_account), _lake_refuses(scene, nobody)
    scene.note(f"a wrong secret is {refused}, a key that nobody has {unknown}")
    expect((refused[0], unknown[0]), (403, 403), "at the lake itself")
    expect(refusal(lambda: read(wrong, SHARED, "guarded")), refused, "cold")
    _warm(scene, SHARED, "guarded", scene.place.guest)
    expect(refusal(lambda: read(wrong, SHARED, "guarded")), refused, "warm")
    expect(refusal(lambda: read(wrong, SHARED, "guarded", Range="bytes=0-9")), refused, "a range, warm")
    expect(refusal(lambda: wrong.put_object(Bucket=SHARED, Key="guarded", Body=b"x")), refused, "a PUT")
    expect(refusal(lambda: wrong.head_object(Bucket=SHARED, Key="guarded"))[0], 403, "a HEAD")
    expect(refusal(lambda: read(scene.client(0, nobody), SHARED, "guarded")), unknown, "a key that nobody has")


def _lake_refuses(scene: Scene, account: Account) -> tuple[int, str]:
    """Returns how the lake itself refuses a read: Ceph has one code for all reasons where it has an STS."""
    return refusal(lambda: read(scene.place.client(account), SHARED, "guarded"))


def _closed(scene: Scene) -> None:
    scene.place.client().put_object(Bucket=CLOSED, Key="secret", Body=content(SIZE, "secret"))
    settled(scene.place.client(), CLOSED, "secret")
    guest = scene.client(0)
    expect(refusal(lambda: read(guest, CLOSED, "secret")), (403, "AccessDenied"), "cold")
    # The owner's key is as unknown to the nodes as that of the guest.
    _warm(scene, CLOSED, "secret", scene.place.lake.account)
    for parameters in ({}, {"Range": "bytes=0-9"}):
        expect(refusal(lambda each=parameters: read(guest, CLOSED, "secret", **each)), (403, "AccessDenied"), "warm")
    expect(refusal(lambda: guest.put_object(Bucket=CLOSED, Key="secret", Body=b"x")), (403, "AccessDenied"), "a PUT")


def _if_match(scene: Scene) -> None:
    body = _put(scene, "pair")
    etag = _warm(scene, SHARED, "pair", scene.place.guest).headers["etag"]
    client, words = scene.client(0), []
    for parameters, expected in ({}, body), ({"Range": "bytes=100-299"}, body[100:300]), ({}, body):
        got = read(client, SHARED, "pair", IfMatch=etag, **parameters)
        expect(got.body == expected, True, f"bytes of a read with If-Match {parameters}")
        words.append(got.found)
    scene.note(f"X-Cache of reads with the ETag in If-Match: {', '.join(words)}")
    other = '"0123456789abcdef0123456789abcdef"'
    expect(refusal(lambda: read(client, SHARED, "pair", IfMatch=other)), (412, "PreconditionFailed"))
    expect(read(client, SHARED, "pair").found, "REVALIDATED", "a read without conditions after them")


def _if_none_match(scene: Scene) -> None:
    body = _put(scene, "other-pair")
    etag = _warm(scene, SHARED, "other-pair", scene.place.guest).headers["etag"]
    client = scene.client(0)
    expect(refusal(lambda: read(client, SHARED, "other-pair", IfNoneMatch=etag))[0], 304)
    other = '"0123456789abcdef0123456789abcdef"'
    expect(read(client, SHARED, "other-pair", IfNoneMatch=other).body == body, True, "bytes")


def _metadata(scene: Scene) -> None:
    owner, key = scene.place.client(), "described"
    body = content(SIZE, key)
    owner.put_object(Bucket=SHARED, Key=key, Body=body, Metadata={"colour": "blue"})
    expect(read(scene.client(0), SHARED, key).headers["x-amz-meta-colour"], "blue")
    settled(owner, SHARED, key)
    before = _warm(scene, SHARED, key, scene.place.guest)
    expect(before.headers["x-amz-meta-colour"], "blue")
    owner.copy_object(
        Bucket=SHARED,
        Key=key,
        CopySource={"Bucket": SHARED, "Key": key},
        Metadata={"colour": "green"},
        MetadataDirective="REPLACE",
    )
    etag = owner.head_object(Bucket=SHARED, Key=key)["ETag"]
    try:
        owner.get_object(Bucket=SHARED, Key=key, IfNoneMatch=etag)
    except ClientError as answer:
        headers = answer.response["ResponseMetadata"]["HTTPHeaders"]
        shown = {name: value for name, value in headers.items() if name in ("last-modified", "etag")}
        shown |= {name: value for name, value in headers.items() if name.startswith("x-amz-meta")}
        scene.note(f"its 304 carries {shown}; the ETag is {'the same' if etag == before.headers['etag'] else 'new'}")
    for attempt in ("first", "second", "third"):
        if attempt == "second":
            settled(owner, SHARED, key)
        got = read(scene.client(0), SHARED, key)
        expect((got.headers["x-amz-meta-colour"], got.body == body), ("green", True), f"{attempt} read after it")
        scene.nodes[0].settle()
    expect(got.found, "REVALIDATED", "third read")


def _overwritten(scene: Scene) -> None:
    _put(scene, "replaced")
    for node in range(len(scene.nodes)):
        read(scene.client(node), SHARED, "replaced")
    body = content(SIZE, "another content")
    scene.place.client().put_object(Bucket=SHARED, Key="replaced", Body=body)
    for node in range(len(scene.nodes)):
        expect(read(scene.client(node), SHARED, "replaced").body == body, True, f"bytes of node {node + 1}")


def _temporary_key(scene: Scene) -> None:
    key = scene.place.temporary_key()
    body = content(SIZE, "temporary")
    scene.client(0, key).put_object(Bucket=SHARED, Key="temporary", Body=body)
    settled(scene.client(0, key), SHARED, "temporary")
    for node, _ in ((0, 1), (0, 2), (1, 1)):
        got = read(scene.client(node, key), SHARED, "temporary")
        expect(got.body == body, True, f"bytes of node {node + 1}")
        scene.nodes[node].settle()
    expect(read(scene.client(0, key), SHARED, "temporary").found, "REVALIDATED")
    status, code = refusal(lambda: read(scene.client(0, key), CLOSED, "secret"))
    expect((status, code), (403, "AccessDenied"), "an object of the owner")
    wrong, bare = (replace(key, session_token=token) for token in ((key.session_token or "")[:-8] + "AAAAAAA=", None))
    status, code = refusal(lambda: read(scene.client(0, wrong), SHARED, "temporary"))
    expect(status in (400, 403), True, f"{status} {code} for another token")
    status, code = refusal(lambda: read(scene.client(0, bare), SHARED, "temporary"))
    expect(status in (400, 403), True, f"{status} {code} without a token")


def _aws_cli(scene: Scene) -> None:
    source, target = scene.folder / "up", scene.folder / "down"
    source.write_bytes(content(20_000_000, "aws-cli"))
    aws, there = Path(sys.executable).with_name("aws"), f"s3://{SHARED}/cli/twenty"
    for node, command in ((0, [source, there]), (1, [there, target]), (1, [there, target])):
        target.unlink(missing_ok=True)
        environment = scene.environment(scene.nodes[node].url)
        output = ended([aws, "s3", "cp", "--no-progress", *command], environment)
        if command[1] == target and not (target.exists() and target.read_bytes() == source.read_bytes()):
            raise Difference(f"other bytes came down: {output}")
        scene.nodes[node].settle()
    listed = ended([aws, "s3", "ls", there], scene.environment(scene.nodes[2].url))
    expect(listed.split()[2:], ["20000000", "twenty"])
    settled(scene.client(1), SHARED, "cli/twenty")
    expect(read(scene.client(1), SHARED, "cli/twenty").found, "REVALIDATED", "a read after it")


def _put(scene: Scene, key: str) -> bytes:
    """Has the guest put an object through the first node, and returns its bytes."""
    body = content(SIZE, key)
    scene.client(0).put_object(Bucket=SHARED, Key=key, Body=body)
    settled(scene.client(0), SHARED, key)
    return body


def _warm(scene: Scene, bucket: str, key: str, account: Account) -> Read:
    """Reads an object through the first node until all of it is there, and returns the last answer."""
    for _ in range(3):
        got = read(scene.client(0, account), bucket, key)
        scene.nodes[0].settle()
        if got.found == "REVALIDATED":
            return got
    raise Difference(f"{bucket}/{key} does not get into the cache: X-Cache {got.found}")


def _no_account(scene: Scene) -> None:
    body = _put(scene, "alone")
    with stranger_to_all(scene.binary, scene.folder, scene.place.lake, "alone", has_account=False) as node:
        client, words = scene.client_of(node), []
        for parameters, expected in (
            ({"Range": "bytes=10-19"}, body[10:20]),
            ({}, body),
            ({}, body),
            ({"Range": f"bytes={MIB - 1}-{MIB}"}, body[MIB - 1 : MIB + 1]),
        ):
            got = read(client, SHARED, "alone", **parameters)
            expect(got.body == expected, True, f"bytes {parameters}")
            words.append(got.found)
            node.settle()
        scene.note(f"X-Cache at a node without an account, of a range, twice all, a range: {', '.join(words)}")
        expect(words[2:], ["REVALIDATED", "REVALIDATED"])
        expect(refusal(lambda: read(client, CLOSED, "secret")), (403, "AccessDenied"), "an object of the owner")


def _bucket_of_guest(scene: Scene) -> None:
    client, body, bucket = _own_bucket(scene), content(SIZE, "own"), "of-the-guest"
    client.put_object(Bucket=bucket, Key="own", Body=body)
    settled(client, bucket, "own")
    words = []
    for each in ((10, 20), (10, 20), (0, SIZE), (0, SIZE), (MIB - 5, MIB + 5)):
        got = read(client, bucket, "own", Range=f"bytes={each[0]}-{each[1] - 1}")
        expect(got.body == body[slice(*each)], True, f"bytes {each}")
        words.append(got.found)
        scene.nodes[0].settle()
    scene.note(
        f"X-Cache where the nodes may not read, of a cold range, the same, all, all, a range: {', '.join(words)}"
    )
    expect(words[1], "BYPASS node-account", "a range of a known object")


def _partly_cached(scene: Scene) -> None:
    client, body, bucket = _own_bucket(scene), content(SIZE, "partly"), "of-the-guest"
    client.put_object(Bucket=bucket, Key="partly", Body=body)
    settled(client, bucket, "partly")
    # A block as it is cached, then more than this.
    for end in (MIB, 2 * MIB + 7, SIZE):
        got = read(client, bucket, "partly", Range=f"bytes=0-{end - 1}")
        expect(got.body == body[:end], True, f"the first {end} bytes")
        scene.nodes[0].settle()


def _own_bucket(scene: Scene) -> BaseClient:
    """Returns a client of the guest, who has a bucket that the account of the nodes may not read."""
    if scene.place.lake.name == "minio":
        raise Skip("the account of the nodes is that of the root user, who may read everything")
    client = scene.client(0)
    client.create_bucket(Bucket="of-the-guest")
    return client
