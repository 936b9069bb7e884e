"""Callers whom a lake refuses, at a node that writes back: they leave nothing in the tier's registry."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from . import tier
from .etcd import Etcd
from .lakes import LAKES, Account, Lake
from .lakes.base import User
from .node import Node
from .processes import await_that
from .report import Difference, Report
from .wire import Answer, send

BUCKET = "refused"
BELOW = "back/"
ROUNDS = 20
UNKNOWN = Account("unknownkey", "unknownsecret")
ORDINARY = Account("ordinarykey", "ordinarysecret")
# Lakes whose ordinary users may do nothing in the buckets of others.
WITH_USERS = ("versitygw", "ceph")

Request = tuple[str, str, str, dict[str, str], dict[str, str], bytes]


def prove(report: Report, name: str, binary: Path, folder: Path, store: Lake) -> None:
    """Counts what refused requests of every kind write, with a lake of its own."""
    users = [User(ORDINARY, "ordinary", "Ordinary", "ordinary@example.org")] if name in WITH_USERS else []
    with ExitStack() as running:
        lake = running.enter_context(LAKES[name](folder / f"{name}-refusing", users))
        etcd = running.enter_context(Etcd(folder / f"{name}-refusing-etcd"))
        tables = tier.tables(tier.Place.of(store, etcd), "1h", [f"s3://{BUCKET}/{BELOW}"], permission="1m")
        for key in ("", "source", f"{BELOW}there"):
            send(lake.url, lake.account, "PUT", BUCKET, key, body=b"text" if key else b"")
        accounts = [lake.account, UNKNOWN, *(user.account for user in users)]
        node = running.enter_context(Node(binary, folder / f"{name}-refusing-node", lake.url, accounts, tables=tables))
        callers: list[Account | None] = [None, UNKNOWN, *(user.account for user in users)]
        with report.check(name, "refused requests write nothing to the registry"):
            # The node notes its session, and when the registry was new.
            await_that("the node has begun its work", lambda: _keys(etcd) >= 2)
            before = _revision(etcd)
            for caller in callers:
                for number in range(ROUNDS):
                    _refuse(node.url, caller, number)
                    if (now := _revision(etcd)) != before:
                        raise Difference(f"{now - before} commits by {caller}")
        with report.check(name, "a permitted caller writes and removes"):
            for method, key, query, body in (
                ("PUT", f"{BELOW}a/k.txt", {}, b"text"),
                ("DELETE", f"{BELOW}there", {}, b""),
                ("DELETE", f"{BELOW}a/k.txt", {}, b""),
            ):
                answer = send(node.url, lake.account, method, BUCKET, key, query=query, body=body)
                if answer.status not in (200, 204):
                    raise Difference(f"{method} {key}: {answer.status} {answer.body[:300]!r}")
            if _revision(etcd) == before:
                raise Difference("the count of commits counts nothing")
        with report.check(name, "questions leave nothing at the lake"):
            time.sleep(1)
            listed = send(lake.url, lake.account, "GET", BUCKET, query={"list-type": "2"}).body
            uploads = send(lake.url, lake.account, "GET", BUCKET, query={"uploads": ""}).body
            if b"-shoal-" in listed or b"<Upload>" in uploads:
                raise Difference(f"{listed!r} {uploads!r}")


def _refuse(url: str, caller: Account | None, number: int) -> None:
    for method, key, what, query, headers, body in _requests(number):
        answer = send(url, caller, method, BUCKET, key, query=query, headers=headers, body=body)
        if answer.status < 400 and not _refuses_each(answer):
            raise Difference(f"{what} by {caller} is not refused: {answer.status} {answer.body[:300]!r}")


def _refuses_each(answer: Answer) -> bool:
    return answer.status == 200 and b"<Error>" in answer.body and b"<Deleted>" not in answer.body


def _requests(number: int) -> Iterator[Request]:
    key = f"{BELOW}{number}/k.txt"
    keys = [f"<Object><Key>{BELOW}{number}-{at}</Key></Object>" for at in range(20)]
    tags = b"<Tagging><TagSet></TagSet></Tagging>"
    form = b'--x\r\nContent-Disposition: form-data; name="key"\r\n\r\nback/form\r\n--x--\r\n'
    form_type = {"Content-Type": "multipart/form-data; boundary=x"}
    yield "PUT", key, "PUT", {}, {}, b"text"
    yield "PUT", key, "PUT around", {}, {"x-shoal-write": "around"}, b"text"
    yield "PUT", key, "PUT if absent", {}, {"If-None-Match": "*"}, b"text"
    yield "PUT", key, "COPY", {}, {"x-amz-copy-source": f"/{BUCKET}/source"}, b""
    yield "DELETE", key, "DELETE", {}, {}, b""
    yield "DELETE", f"{BELOW}there", "DELETE of an object", {}, {}, b""
    yield "PUT", f"{BELOW}there", "?acl", {"acl": ""}, {"x-amz-acl": "public-read"}, b""
    yield "PUT", f"{BELOW}there", "?tagging", {"tagging": ""}, {}, tags
    yield "DELETE", f"{BELOW}there", "DELETE ?tagging", {"tagging": ""}, {}, b""
    yield "POST", "", "POST form", {}, form_type, form
    yield "POST", "", "DeleteObjects", {"delete": ""}, {}, f"<Delete>{''.join(keys)}</Delete>".encode()
    yield "POST", key, "CreateMultipartUpload", {"uploads": ""}, {}, b""
    yield "PUT", key, "UploadPart", {"partNumber": "1", "uploadId": "x"}, {}, b"text"
    yield "POST", key, "Complete", {"uploadId": "x"}, {}, b"<CompleteMultipartUpload/>"


def _revision(etcd: Etcd) -> int:
    header = _all(etcd)["header"]
    if not isinstance(header, dict):
        raise TypeError(header)
    return int(header["revision"])


def _keys(etcd: Etcd) -> int:
    return int(str(_all(etcd).get("count", 0)))


def _all(etcd: Etcd) -> dict[str, object]:
    every = base64.b64encode(b"\0").decode()
    return etcd.ask("kv/range", {"key": every, "range_end": every, "count_only": True})
