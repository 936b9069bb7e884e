"""One client's requests, each noted in a history with all that its answer says."""

from __future__ import annotations

import base64
import hashlib
import http.client
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import quote
from xml.etree import ElementTree

from real.lakes import Account
from real.wire import Answer, send

from .history import ABSENT, IF_ABSENT, History, Operation
from .objects import contents

# A node that answers 503 has not done the request, unless it says that the outcome is not known.
_UNKNOWN = b"not known"
_DONE = (200, 204)


class Refused(Exception):
    """A request failed that has to succeed for the story to go on."""


@dataclass
class Hand:
    """Sends requests to nodes by their numbers."""

    urls: Mapping[int, str]
    account: Account
    bucket: str
    history: History = field(default_factory=lambda: History([]))
    timeout_s: float = 5

    def put(
        self, key: str, name: str, node: int, condition: str = "", headers: Mapping[str, str] | None = None
    ) -> bool:
        """Writes the body that has this name. Returns whether an answer tells its outcome."""
        data = body(name)
        operation = Operation(key, "PUT", value_of(data), 0, 0, node, condition=condition)
        return self._write(operation, "PUT", {**_conditions(condition), **(headers or {})}, data)

    def delete(self, key: str, node: int) -> bool:
        """Removes a name."""
        return self._write(Operation(key, "DELETE", ABSENT, 0, 0, node), "DELETE", {}, b"")

    def copy(self, source: str, value: str, key: str, node: int) -> bool:
        """Copies a name that has this value, or nothing."""
        headers = {
            "x-amz-copy-source": quote(f"/{self.bucket}/{source}"),
            "x-amz-copy-source-if-match": f'"{value.split(maxsplit=1)[0]}"',
        }
        return self._write(Operation(key, "COPY", value, 0, 0, node), "PUT", headers, b"")

    def complete(self, key: str, upload: Upload, node: int) -> bool:
        """Makes an object of an upload's parts."""
        operation = Operation(key, "PUT", upload.value, 0, 0, node, note="upload")
        return self._write(operation, "POST", {}, upload.document, {"uploadId": upload.id})

    def delete_all(self, keys: Sequence[str], node: int) -> bool:
        """Removes names with one request. Returns whether the node answered with success."""
        objects = "".join(f"<Object><Key>{key}</Key></Object>" for key in keys)
        document = f"<Delete>{objects}</Delete>".encode()
        headers = {"Content-MD5": base64.b64encode(hashlib.md5(document).digest()).decode()}
        removal = Operation("", "DELETE", ABSENT, time.monotonic(), 0, node)
        where = (self.urls[node], self.account, "POST", self.bucket)
        try:
            answer = send(*where, query={"delete": ""}, headers=headers, body=document, timeout_s=self.timeout_s)
        except (OSError, http.client.HTTPException) as error:
            answer = Answer(0, {}, f"{type(error).__name__}: {error}".encode())
        for key in keys:
            done = answer.status == 200 and f"<Deleted><Key>{key}</Key>".encode() in answer.body
            known = replace(removal, key=key, ended_s=time.monotonic() if done else math.inf, answered=done)
            self.history.operations.append(known)
        return answer.status == 200

    def upload(self, key: str, names: Sequence[str], node: int) -> Upload:
        """Begins an upload, and uploads a part for each body's name."""
        begun = self._needed("POST", key, node, query={"uploads": ""})
        upload = Upload(re.findall(r"<UploadId>([^<]+)<", begun.body.decode())[0], [body(name) for name in names])
        for number, part in enumerate(upload.parts, 1):
            self._needed("PUT", key, node, query={"partNumber": str(number), "uploadId": upload.id}, body=part)
        return upload

    def read(self, key: str, node: int, kind: str = "GET") -> bool:
        """Reads a name by GET, HEAD or LIST. Returns whether the node answered."""
        if kind == "LIST":
            return self.list(key, [key], node)
        began = time.monotonic()
        try:
            answer = send(self.urls[node], self.account, kind, self.bucket, key, timeout_s=self.timeout_s)
        except (OSError, http.client.HTTPException) as error:
            return self._failed(kind, key, node, repr(error))
        if answer.status not in (200, 404):
            return self._failed(kind, key, node, _told(answer))
        value = value_in(answer, kind) if answer.status == 200 else ABSENT
        note = answer.headers.get("x-cache", "")
        self.history.operations.append(Operation(key, kind, value, began, time.monotonic(), node, note))
        return True

    def list(self, prefix: str, keys: Sequence[str], node: int) -> bool:
        """Lists a prefix, and notes which of these keys below it are there. Returns whether the node answered."""
        reads: list[Operation] = []
        after = ""
        while True:
            began = time.monotonic()
            query = {"list-type": "2", "prefix": prefix, **({"start-after": after} if after else {})}
            try:
                answer = send(self.urls[node], self.account, "GET", self.bucket, query=query, timeout_s=self.timeout_s)
            except (OSError, http.client.HTTPException) as error:
                return self._failed("LIST", prefix, node, repr(error))
            if answer.status != 200:
                return self._failed("LIST", prefix, node, _told(answer))
            ended, listed = time.monotonic(), listing(answer.body)
            is_last = b"<IsTruncated>true<" not in answer.body
            # A page tells of the names that follow the page before, and do not follow its own last.
            last = max(listed, default="")
            on_page = [key for key in keys if after < key and (is_last or key <= last)]
            reads += [Operation(key, "LIST", listed.get(key, ABSENT), began, ended, node) for key in on_page]
            if is_last:
                self.history.operations.extend(reads)
                return True
            after = last

    def _write(
        self,
        operation: Operation,
        method: str,
        headers: Mapping[str, str],
        data: bytes,
        query: dict[str, str] | None = None,
    ) -> bool:
        began = time.monotonic()
        where = (self.urls[operation.node], self.account, method, self.bucket, operation.key)
        try:
            answer = send(*where, query=query, headers=dict(headers), body=data, timeout_s=self.timeout_s)
        except ConnectionRefusedError as error:
            # No node has received the request.
            return self._failed(method, operation.key, operation.node, repr(error))
        except (OSError, http.client.HTTPException) as error:
            answer = Answer(0, {}, f"{type(error).__name__}: {error}".encode())
        known = replace(operation, began_s=began, ended_s=time.monotonic())
        if noted := _understood(known, answer):
            self.history.operations.append(noted)
        is_answered = noted is not None and noted.answered
        if is_answered or _lost_its_source(operation, answer):
            return is_answered
        return self._failed(method, operation.key, operation.node, _told(answer))

    def _failed(self, kind: str, key: str, node: int, why: str) -> bool:
        self.history.failures.append(f"{kind} of {key} at {node}: {why}"[:300])
        return False

    def _needed(self, method: str, key: str, node: int, **more: object) -> Answer:
        where = (self.urls[node], self.account, method, self.bucket, key)
        answer = send(*where, timeout_s=self.timeout_s, **more)  # type: ignore[arg-type]
        if answer.status != 200:
            raise Refused(f"{method} of {key}: {answer.status} {answer.body[:200]!r}")
        return answer


@dataclass(frozen=True)
class Upload:
    """An upload and its parts, not an object yet."""

    id: str
    parts: Sequence[bytes]

    @property
    def value(self) -> str:
        """Returns the value of the object that the parts make."""
        digests = b"".join(hashlib.md5(part).digest() for part in self.parts)
        etag = f"{hashlib.md5(digests).hexdigest()}-{len(self.parts)}"
        return f"{etag} {sum(len(part) for part in self.parts)}"

    @property
    def document(self) -> bytes:
        """Returns the document that a client sends to complete the upload."""
        parts = "".join(
            f'<Part><PartNumber>{number}</PartNumber><ETag>"{hashlib.md5(part).hexdigest()}"</ETag></Part>'
            for number, part in enumerate(self.parts, 1)
        )
        return f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()


def body(name: str) -> bytes:
    """Returns the bytes of a name that ends with a size: the name, then as many bytes of noise as it says."""
    return f"{name}\n".encode() + contents(name, int(name.rsplit("-", 1)[1]))


def value_of(data: bytes) -> str:
    """Returns ETag and size of the object that one PUT writes."""
    return f"{hashlib.md5(data).hexdigest()} {len(data)}"


def value_in(answer: Answer, kind: str) -> str:
    """Returns the value in an answer to GET or HEAD. Bytes that differ from its ETag are a value of their own."""
    etag = answer.headers.get("etag", "").strip('"')
    if kind == "HEAD":
        return f"{etag} {answer.headers.get('content-length')}"
    # The ETag of an object in parts does not follow from its bytes alone, but each part begins with its name,
    # which tells its length.
    read = _in_parts(answer.body) if "-" in etag else value_of(answer.body)
    said = f"{etag} {len(answer.body)}"
    return said if read == said else f"{len(answer.body)} bytes of {read} under the ETag {etag}"


def _in_parts(data: bytes) -> str:
    """Returns the value of an object whose parts are bodies with names."""
    parts = []
    while data:
        name = data.split(b"\n", 1)[0][:80].decode(errors="replace")
        try:
            part = body(name)
        except (ValueError, IndexError):
            return "nothing known"
        if not data.startswith(part):
            return f"something else than {name}"
        parts.append(part)
        data = data[len(part) :]
    return Upload("", parts).value


def listing(document: bytes) -> dict[str, str]:
    """Returns the values of the keys in a listing."""
    root = ElementTree.fromstring(document)
    space = root.tag.partition("}")[0] + "}" if root.tag.startswith("{") else ""
    found = {}
    for entry in root.iter(f"{space}Contents"):
        key, etag, size = (entry.findtext(f"{space}{name}") or "" for name in ("Key", "ETag", "Size"))
        found[key] = f"{etag.strip(chr(34))} {size}"
    return found


def _conditions(condition: str) -> dict[str, str]:
    if not condition:
        return {}
    if condition == IF_ABSENT:
        return {"If-None-Match": "*"}
    return {"If-Match": f'"{condition.split()[1]}"'}


def _understood(operation: Operation, answer: Answer) -> Operation | None:
    """Returns the operation with its answer; None if it certainly had no effect."""
    note = answer.headers.get("x-shoal-write", "") or operation.note
    told = _told(answer)
    if answer.status in _DONE and b"<Error>" not in answer.body:
        return replace(operation, note=note)
    if _lost_its_source(operation, answer):
        return None
    if operation.condition and answer.status in (404, 412):
        return replace(operation, refused=True, note=told)
    is_refused = answer.status == 503 and _UNKNOWN not in answer.body
    if is_refused or 400 <= answer.status < 500:
        return None
    return replace(operation, answered=False, ended_s=math.inf, note=told)


def _lost_its_source(operation: Operation, answer: Answer) -> bool:
    """Returns whether the source of a copy did not have the value that the condition names."""
    return operation.kind == "COPY" and answer.status in (404, 412)


def _told(answer: Answer) -> str:
    return f"{answer.status} {answer.body[:200]!r}"
