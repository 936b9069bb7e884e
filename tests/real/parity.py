"""Reads of the same objects at the lake and through the node, compared by status, headers and bytes.

The suite writes the objects to the lake directly. It sends each question to the lake, then to a node that never saw the
object, then to the node that did. The name of a question says what it tests; its request is data.
"""

from __future__ import annotations

import base64
import re
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from .lakes import Account
from .report import Difference, Report, first_differences
from .store import content, digest
from .wire import Answer, send

MIB = 1 << 20
BLOCK = 4 * MIB
PAST, FUTURE = "Sat, 01 Jan 2000 00:00:00 GMT", "Fri, 01 Jan 2038 00:00:00 GMT"
# Blocks that a client has are on the disk within this time.
_CACHED_S = 30
OTHER_ETAG = '"00000000000000000000000000000000"'

ERROR_CODE = re.compile(rb"<Code>([^<]*)</Code>")

ODD_KEYS = (
    "_leading",
    "a_b/c",
    "hash#mark?question",
    "percent%2Fslash%25",
    "plus+and space",
    "double//slash",
    "dot/./dot",
    "dots/../up",
    "trailing/",
    "control\x01\x1f\x7f",
    "crab \U0001f980",
    "long/" + "ü" * 120 + "/" + "n" * 200 + "/" + "x" * 200 + "/" + "y" * 200 + "/" + "z" * 175,
    "&<>\"'",
    "~tilde*(star)!",
)


@dataclass(frozen=True)
class Sample:
    """An object at the lake."""

    key: str
    etag: str


@dataclass(frozen=True)
class Question:
    """One request about a sample; headers and query may name its ETag by `{etag}` and `{bare}`."""

    method: str = "GET"
    headers: dict[str, str] = field(default_factory=dict)
    query: dict[str, str] = field(default_factory=dict)
    anonymous: bool = False
    """Whether the node answers from its cache when it gets the question again, if the answer has a body."""
    cached: bool = True


def ranged(text: str, **more: str) -> Question:
    """Returns a GET of a range, with further headers whose names have `_` for `-`."""
    return Question(headers={"Range": text, **{name.replace("_", "-"): value for name, value in more.items()}})


def conditional(method: str = "GET", **conditions: str) -> Question:
    """Returns a request with conditions whose names have `_` for `-`."""
    return Question(method, {name.replace("_", "-"): value for name, value in conditions.items()})


QUESTIONS: dict[str, Question] = {
    "the whole object": Question(),
    "its head": Question("HEAD"),
    "range: first byte": ranged("bytes=0-0"),
    "range: over a block's end": ranged(f"bytes={BLOCK - 2}-{BLOCK + 1}"),
    "range: open": ranged("bytes=1000-"),
    "range: open in the last block": ranged(f"bytes={BLOCK}-"),
    "range: last byte": ranged("bytes=-1"),
    "range: suffix over a block": ranged(f"bytes=-{BLOCK + 1}"),
    "range: suffix longer than the object": ranged("bytes=-999999999"),
    "range: empty suffix": ranged("bytes=-0"),
    "range: ends past the end": ranged("bytes=0-999999999"),
    "range: starts past the end": ranged("bytes=999999999-"),
    "range: reversed": ranged("bytes=5-2"),
    "range: several": ranged("bytes=0-1,4-5"),
    "range: not a range": ranged("bytes=abc"),
    "range: other unit": ranged("lines=0-1"),
    "range: of a head": Question("HEAD", {"Range": "bytes=0-0"}),
    "if-match": conditional(If_Match="{etag}"),
    "if-match: unquoted": conditional(If_Match="{bare}"),
    "if-match: any": conditional(If_Match="*"),
    "if-match: other": conditional(If_Match=OTHER_ETAG),
    "if-match: other, head": conditional("HEAD", If_Match=OTHER_ETAG),
    "if-match with a range": ranged("bytes=0-9", If_Match="{etag}"),
    "if-none-match": conditional(If_None_Match="{etag}"),
    "if-none-match: head": conditional("HEAD", If_None_Match="{etag}"),
    "if-none-match: unquoted": conditional(If_None_Match="{bare}"),
    "if-none-match: any": conditional(If_None_Match="*"),
    "if-none-match: other": conditional(If_None_Match=OTHER_ETAG),
    "if-none-match with a range": ranged("bytes=0-9", If_None_Match="{etag}"),
    "if-modified-since: past": conditional(If_Modified_Since=PAST),
    "if-modified-since: future": conditional(If_Modified_Since=FUTURE),
    "if-modified-since: not a date": conditional(If_Modified_Since="yesterday"),
    "if-unmodified-since: past": conditional(If_Unmodified_Since=PAST),
    "if-unmodified-since: future": conditional(If_Unmodified_Since=FUTURE),
    "if-match: empty": conditional(If_Match=""),
    "if-match: empty, head": conditional("HEAD", If_Match=""),
    "if-match: a list": conditional(If_Match=f"{OTHER_ETAG}, {{etag}}"),
    "if-match: a list, head": conditional("HEAD", If_Match=f"{OTHER_ETAG}, {{etag}}"),
    "if-match: a list that begins with it": conditional(If_Match=f"{{etag}}, {OTHER_ETAG}"),
    "if-match: weak": conditional(If_Match="W/{etag}"),
    "if-none-match: empty": conditional(If_None_Match=""),
    "if-none-match: a list": conditional(If_None_Match=f"{OTHER_ETAG}, {{etag}}"),
    "if-none-match: a list, head": conditional("HEAD", If_None_Match=f"{OTHER_ETAG}, {{etag}}"),
    "if-none-match: weak": conditional(If_None_Match="W/{etag}"),
    "if-modified-since: empty": conditional(If_Modified_Since=""),
    "if-unmodified-since: empty": conditional(If_Unmodified_Since=""),
    "if-match beats if-unmodified-since": conditional(If_Match="{etag}", If_Unmodified_Since=PAST),
    "if-none-match beats if-modified-since": conditional(If_None_Match=OTHER_ETAG, If_Modified_Since=FUTURE),
    "if-range": Question(headers={"Range": "bytes=0-9", "If-Range": "{etag}"}, cached=False),
    "if-range: other": Question(headers={"Range": "bytes=0-9", "If-Range": OTHER_ETAG}, cached=False),
    "overridden headers": Question(
        query={
            "response-content-type": "text/x-other",
            "response-content-disposition": 'attachment; filename="ü.bin"',
            "response-cache-control": "no-cache",
            "response-content-language": "fr",
            "response-expires": FUTURE,
            "response-content-encoding": "identity",
        }
    ),
    "overridden headers: empty": Question(query={"response-content-type": "", "response-expires": ""}),
    "overridden headers: empty, head": Question("HEAD", query={"response-content-type": ""}),
    "overridden headers: anonymous": Question(query={"response-content-type": "text/x-other"}, anonymous=True),
    "a stored checksum": Question(headers={"x-amz-checksum-mode": "ENABLED"}),
    "a stored checksum: head": Question("HEAD", {"x-amz-checksum-mode": "ENABLED"}),
    "part 1": Question(query={"partNumber": "1"}, cached=False),
    "part 2": Question(query={"partNumber": "2"}, cached=False),
    "part 99": Question(query={"partNumber": "99"}, cached=False),
    "an unknown version": Question(query={"versionId": "00000000000000000000000000000000"}, cached=False),
    "the null version": Question(query={"versionId": "null"}, cached=False),
    "a parameter SDKs add": Question(query={"x-id": "GetObject"}),
    "accept-encoding": Question(headers={"Accept-Encoding": "gzip, br"}),
    "its tags": Question(query={"tagging": ""}, cached=False),
    "its acl": Question(query={"acl": ""}, cached=False),
    "anonymous": Question(anonymous=True),
    "anonymous head": Question("HEAD", anonymous=True),
    "an unknown method": Question("PATCH", cached=False),
}

QUICK = (
    "the whole object",
    "its head",
    "range: over a block's end",
    "range: suffix over a block",
    "if-none-match",
    "anonymous",
)


class Parity:
    """The comparison of one lake with one node in front of it."""

    def __init__(
        self, report: Report, lake_name: str, lake_url: str, node_url: str, account: Account, forget: Callable[[], None]
    ) -> None:
        """`forget` empties the node's cache; it does nothing when the node is not ours to restart."""
        self._report, self._lake_name = report, lake_name
        self._lake_url, self._node_url, self._account = lake_url, node_url, account
        self._forget = forget
        self._bucket = "parity"

    def run(self, quick: bool) -> None:
        """Asks every question about every sample, then compares keys and strangers."""
        samples = list(self._write_samples())
        for name, question in QUESTIONS.items():
            if quick and name not in QUICK:
                continue
            with self._report.check(self._lake_name, "parity", name):
                self._forget()
                for sample in samples:
                    self._compare(question, sample)
        with self._report.check(self._lake_name, "parity", "odd keys"):
            self._compare_odd_keys()
        with self._report.check(self._lake_name, "parity", "absent keys and buckets"):
            self._compare_absent()
        with self._report.check(self._lake_name, "parity", "strangers on cold and warm objects"):
            self._compare_strangers(samples[1])
        with self._report.check(self._lake_name, "parity", "streamed bodies with a trailing checksum"):
            self._compare_trailers()

    def _write_samples(self) -> Iterator[Sample]:
        self._lake("PUT", "")
        for size in (0, 1, BLOCK - 1, BLOCK, BLOCK + 1):
            yield self._sample(
                f"size/{size}", {"x-amz-meta-size": str(size), "Content-Type": "text/x-sample"}, content(size)
            )
        yield self._sample(
            "headers",
            {
                "Cache-Control": "max-age=60",
                "Content-Disposition": "inline",
                "Content-Encoding": "aws-told",
                "Content-Language": "de, en",
                "Expires": FUTURE,
                "x-amz-meta-one": "1, 2",
                "x-amz-checksum-crc32": base64.b64encode(zlib.crc32(b"headers").to_bytes(4)).decode(),
            },
            b"headers",
        )
        yield self._multipart_sample()

    def _sample(self, key: str, headers: dict[str, str], body: bytes) -> Sample:
        answer = self._lake("PUT", key, headers=headers, body=body)
        if answer.status != 200:
            raise RuntimeError(f"the lake refused a sample: {answer.status} {answer.body!r}")
        return Sample(key, answer.headers["etag"])

    def _multipart_sample(self) -> Sample:
        key, parts = "multipart", (content(5 * MIB, seed=1), content(5 * MIB + 1, seed=2))
        begun = self._lake("POST", key, query={"uploads": ""}).body.decode()
        upload = begun.partition("<UploadId>")[2].partition("</UploadId>")[0]
        listed = ""
        for number, body in enumerate(parts, start=1):
            etag = self._lake("PUT", key, query={"partNumber": str(number), "uploadId": upload}, body=body).headers[
                "etag"
            ]
            listed += f"<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>"
        page = f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>".encode()
        self._lake("POST", key, query={"uploadId": upload}, body=page)
        return Sample(key, self._lake("HEAD", key).headers["etag"])

    def _compare(self, question: Question, sample: Sample) -> None:
        fields = {"etag": sample.etag, "bare": sample.etag.strip('"')}
        headers = {name: value.format(**fields) for name, value in question.headers.items()}
        account = None if question.anonymous else self._account

        def ask(url: str) -> Answer:
            return send(url, account, question.method, self._bucket, sample.key, query=question.query, headers=headers)

        expected = ask(self._lake_url)
        for reading in ("cold", "warm"):
            found = ask(self._node_url)
            require_equal(f"{sample.key}, {reading}", expected, found)
        if question.cached and question.method == "GET" and found.status in (200, 206) and found.body:
            self._require_hit(sample.key, lambda: ask(self._node_url))

    def _require_hit(self, key: str, ask: Callable[[], Answer]) -> None:
        """Fails unless the node answers from its cache soon, so that a node that caches nothing does not pass.

        It asks again for a while, because blocks reach the disk some time after the client has them.
        """
        if self._node_url == self._lake_url:
            return
        deadline = time.monotonic() + _CACHED_S
        while (answer := ask()).headers.get("x-cache") not in ("HIT", "REVALIDATED"):
            # The node sends a request to the lake every time if stores differ in their answers to it.
            if answer.headers.get("x-cache-reason") == "dialect":
                return
            if time.monotonic() > deadline:
                cache, reason = (answer.headers.get(name) for name in ("x-cache", "x-cache-reason"))
                raise Difference(f"{key}: X-Cache remains {cache}, reason {reason}")

    def _compare_odd_keys(self) -> None:
        sides = {"lake": self._lake_url, "node": self._node_url}
        for key in ODD_KEYS:
            body = key.encode()
            for writer, url in sides.items():
                expected = self._ask(self._lake_url, "PUT", f"plain/{key}", body=body)
                require_equal(f"PUT {key!r}", expected, self._ask(url, "PUT", f"{writer}/{key}", body=body))
                if expected.status == 200:
                    for _ in range(2):
                        read = (self._ask(side, "GET", f"{writer}/{key}") for side in sides.values())
                        require_equal(f"GET {key!r}", *read)

    def _compare_absent(self) -> None:
        for bucket, key in (
            (self._bucket, "absent"),
            (self._bucket, ""),
            ("absent-bucket", "x"),
            ("absent-bucket", ""),
        ):
            for method in ("GET", "HEAD", "DELETE"):
                if method == "DELETE" and (bucket, key) == (self._bucket, ""):
                    continue
                expected, *found = (
                    send(url, self._account, method, bucket, key)
                    for url in (self._lake_url, self._node_url, self._node_url)
                )
                for answer in found:
                    require_equal(f"{method} {bucket}/{key}", expected, answer)

    def _compare_strangers(self, sample: Sample) -> None:
        strangers = {
            "unknown key": Account("nobody", self._account.secret_key),
            "wrong secret": Account(self._account.access_key, "wrong"),
            "anonymous": None,
        }
        for state in ("cold", "warm"):
            if state == "cold":
                self._forget()
            else:
                self._ask(self._node_url, "GET", sample.key)
            for who, account in strangers.items():
                for method in ("GET", "HEAD"):
                    for headers in (
                        {},
                        {"Range": "bytes=0-0"},
                        {"If-None-Match": sample.etag},
                        {"If-Match": OTHER_ETAG},
                    ):
                        expected, found = (
                            send(url, account, method, self._bucket, sample.key, headers=headers)
                            for url in (self._lake_url, self._node_url)
                        )
                        require_equal(f"{who}, {state}, {method} {headers}", expected, found)

    def _compare_trailers(self) -> None:
        data = content(100_000, seed=3)
        right = base64.b64encode(zlib.crc32(data).to_bytes(4)).decode()
        wrong = base64.b64encode((zlib.crc32(data) ^ 1).to_bytes(4)).decode()
        for name, trailer, length in (
            ("right", right, len(data)),
            ("wrong", wrong, len(data)),
            ("short", right, len(data) - 1),
        ):
            headers = {
                "Content-Encoding": "aws-chunked",
                "x-amz-decoded-content-length": str(length),
                "x-amz-trailer": "x-amz-checksum-crc32",
            }
            body = chunked(data, f"x-amz-checksum-crc32:{trailer}")
            key = f"trailer/{name}"
            expected, found = (
                send(
                    *(url, self._account, "PUT", self._bucket, f"{key}/{side}"),
                    headers=headers,
                    body=body,
                    payload="STREAMING-UNSIGNED-PAYLOAD-TRAILER",
                )
                for side, url in (("lake", self._lake_url), ("node", self._node_url))
            )
            if name == "right":
                require_equal("PUT with a right trailer", expected, found)
            elif not 400 <= found.status < 500:
                # Servers may name the error differently. The node must refuse even if the lake does not check
                # the trailer.
                raise Difference(f"PUT with a {name} trailer: {found.status}")
            stored = [self._ask(self._lake_url, "GET", f"{key}/{side}") for side in ("lake", "node")]
            if name == "right":
                require_equal("GET after a right trailer", *(replace(answer, headers={}) for answer in stored))
            elif stored[1].status != 404:
                raise Difference(f"a body with a {name} trailer was stored")

    def _lake(
        self,
        method: str,
        key: str,
        *,
        query: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> Answer:
        return send(self._lake_url, self._account, method, self._bucket, key, query=query, headers=headers, body=body)

    def _ask(self, url: str, method: str, key: str, body: bytes = b"") -> Answer:
        return send(url, self._account, method, self._bucket, key, body=body)


def require_equal(what: str, expected: Answer, found: Answer) -> None:
    """Raises `Difference` if two answers differ in more than they may."""
    if expected.status >= 400:
        # The node may answer by itself; then only its words may differ, not its status and code.
        left, right = (
            {"status": answer.status, "code": b"".join(ERROR_CODE.findall(answer.body)).decode()}
            for answer in (expected, found)
        )
    else:
        left, right = (
            {"status": status, "headers": headers, "body": digest(body)}
            for status, headers, body in (expected.stable(), found.stable())
        )
    differences = first_differences(left, right)
    if differences:
        raise Difference(f"{what}: " + "; ".join(differences))


def chunked(data: bytes, trailer: str) -> bytes:
    """Returns an aws-chunked body of two unsigned chunks and a trailer."""
    middle = 65_536
    chunks = b"".join(f"{len(part):x}\r\n".encode() + part + b"\r\n" for part in (data[:middle], data[middle:]))
    return chunks + b"0\r\n" + trailer.encode() + b"\r\n\r\n"
