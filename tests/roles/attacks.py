"""Attacks: stolen and forged keys and tokens are refused, and crowds cause a bounded number of requests at STS."""

from __future__ import annotations

import http.client
import json
import re
import select
import socket
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from urllib.error import HTTPError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import urlopen

from botocore.awsrequest import AWSPreparedRequest
from real import aws
from real.aws import account_of
from real.lakes import Account
from real.report import Skip
from real.signing import encode_path, signed_headers
from real.wire import Answer

from .lakes import ROLES, give_rights
from .scene import BUCKET, CONTENT, Scene, expect, outcome

PODS = 1000
# What one node asks its STS at a time.
AT_STS_MAX = 32
# Of requests that a node refuses by their size.
TOO_LARGE = (HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)


def run(scene: Scene) -> None:
    """Runs all of them."""
    for name, attack in (
        ("the token of another session", _swapped),
        ("what is signed is changed", _changed),
        ("a stolen ETag", _stolen_etag),
        ("a role that is revoked", _revoked),
        ("a relay to another host", _relayed),
        ("tokens that are too large", _too_large),
        ("forged tokens by the hundred", _forged),
        ("1,000 pods at once, each with a token", _crowd),
        ("1,000 pods at once, all with one token", _crowd_with_one_token),
        ("a replay after the end of the key", _replayed),
        ("an STS that is down", _down),
    ):
        with scene.check("attack:", name):
            attack(scene)


def _swapped(scene: Scene) -> None:
    one, other = _key(scene, subject="one"), _key(scene, subject="other")
    swapped, bare = replace(one, session_token=other.session_token), replace(one, session_token=None)
    for node in range(3):
        expect(_code(scene.read(node, one)), "200", "the key itself")
        expect(_code(scene.read(node, swapped)), "400 InvalidToken", "with the token of another")
        expect(_code(scene.read(node, bare)), "403 InvalidAccessKeyId", "without a token")
    before = scene.sts.requests
    for sts in (scene.asking(0, swapped), scene.asking(0, bare)):
        assume = partial(sts.assume_role, RoleArn=scene.roles["ETL"], RoleSessionName="session")
        expect(outcome(assume)[0], 403, "at STS")
    expect(scene.sts.requests, before, "requests at STS")


def _changed(scene: Scene) -> None:
    key = _key(scene)

    def other_metadata(request: AWSPreparedRequest, **_: object) -> None:
        _replace(request, "x-amz-meta-owner", "thief")

    def other_role(request: AWSPreparedRequest, **_: object) -> None:
        request.body = request.body.replace("ETL", "BLIND")
        _replace(request, "content-length", str(len(request.body)))

    s3, sts = scene.s3(1, key), scene.asking(1, scene.owner)
    s3.meta.events.register("before-send.s3", other_metadata)
    put = {"Bucket": BUCKET, "Key": "changed", "Body": b"", "Metadata": {"owner": "client"}}
    expect(outcome(lambda: s3.put_object(**put)), (403, "SignatureDoesNotMatch"), "a header")
    sts.meta.events.register("before-send.sts", other_role)
    before, role = scene.sts.requests, scene.roles["ETL"]
    said = outcome(lambda: sts.assume_role(RoleArn=role, RoleSessionName="ETL"))
    expect(said, (403, "SignatureDoesNotMatch"), "the form of STS")
    expect(scene.sts.requests, before, "requests at STS")
    url = scene.s3(1, key).generate_presigned_url("get_object", Params={"Bucket": BUCKET, "Key": "hot"})
    expect(_fetched(url), len(CONTENT), "a presigned URL")
    expect(_fetched(url.replace("/hot?", "/changed?")), 403, "a presigned URL of another object")


def _replace(request: AWSPreparedRequest, name: str, value: str) -> None:
    # Assigning would add a second one.
    del request.headers[name]
    request.headers[name] = value


def _stolen_etag(scene: Scene) -> None:
    etl, blind = _key(scene), _key(scene, "BLIND")
    for node in range(3):
        etag = scene.read(node, etl).headers["etag"]
        expect(_code(scene.read(node, etl, headers={"If-None-Match": etag})), "304", "for the role that may read")
        for condition in ({"If-None-Match": etag}, {"If-Match": etag}, {"If-None-Match": "*"}, {"Range": "bytes=0-0"}):
            expect(_code(scene.read(node, blind, headers=condition)), "403 AccessDenied", f"with {condition}")


def _replayed(scene: Scene) -> None:
    if scene.lake.name != "moto":
        raise Skip("its STS gives no key for less than a quarter of an hour")
    node, path = urlsplit(scene.cluster.nodes[1].url), encode_path(BUCKET, "hot")
    # A busy machine may need longer than the first key lives.
    for life_s in (4, 16, 64):
        key = _short_key(scene, life_s)
        signed = signed_headers(key, "GET", node.netloc, path)
        url = scene.s3(1, key).generate_presigned_url("get_object", Params={"Bucket": BUCKET, "Key": "hot"})
        before = _answer(node.netloc, "GET", path, headers=signed).status, _fetched(url)
        if before == (200, len(CONTENT)):
            break
    expect(before, (200, len(CONTENT)), "before")
    time.sleep(life_s + 1)
    expect(_code(_answer(node.netloc, "GET", path, headers=signed)), "400 ExpiredToken", "the same request")
    expect(_fetched(url), 400, "a presigned URL for an hour")
    assume = {"RoleArn": scene.roles["ETL"], "RoleSessionName": "session"}
    expect(outcome(lambda: scene.asking(1, key).assume_role(**assume))[0], 403, "at STS")


def _short_key(scene: Scene, life_s: int) -> Account:
    form = {
        "Action": "AssumeRoleWithWebIdentity",
        "Version": "2011-06-15",
        "RoleArn": scene.roles["ETL"],
        "RoleSessionName": "session",
        "WebIdentityToken": scene.token(),
        "DurationSeconds": str(life_s),
    }
    answer = _send(scene, "POST", "/", urlencode(form).encode())
    expect(answer.status, 200, answer.body.decode())
    names = ("AccessKeyId", "SecretAccessKey", "SessionToken")
    return account_of({name: _element(answer.body, name) for name in names})


def _revoked(scene: Scene) -> None:
    if scene.lake.name == "minio":
        raise Skip("the policy of its role is a part of its configuration")
    key, iam = _key(scene), aws.client("iam", scene.lake.url, scene.owner)

    def codes() -> list[str]:
        return [_code(scene.read(node, key)) for node in range(3)]

    expect(codes(), ["200"] * 3, "before")
    give_rights(iam, "ETL", ["s3:PutObject"])
    try:
        expect(codes(), ["403 AccessDenied"] * 3, "what all nodes have cached, to the same key")
        expect(_code(scene.read(0, _key(scene))), "403 AccessDenied", "a new key")
    finally:
        give_rights(iam, "ETL", ROLES["ETL"])
    expect(codes(), ["200"] * 3, "after the rights are back")


def _relayed(scene: Scene) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        there = f"127.0.0.1:{other.getsockname()[1]}"
        role, before = quote(scene.roles["ETL"], safe=""), scene.sts.requests
        form = urlencode({"Action": "AssumeRoleWithWebIdentity", "Version": "2011-06-15", "RoleSessionName": "session"})
        by_token = f"{form}&RoleArn={role}&WebIdentityToken=forged".encode()
        # An issuer that would have to be asked for its keys.
        foreign = scene.issuer.token("pod", "ETL", iss=f"http://{there}").rpartition(".")[0]
        token = {"authorization": f"{foreign}.{scene.token('BLIND').rpartition('.')[2]}"}
        for method, target, body, headers in (
            ("POST", f"http://{there}/", by_token, {}),
            ("POST", f"//{there}/", by_token, {}),
            ("POST", "/", by_token, {"Host": there, "X-Forwarded-Host": there}),
            ("POST", "/", f"{form}&RoleArn=http://{there}/&WebIdentityToken=forged".encode(), {}),
            ("CONNECT", there, b"", {}),
            ("GET", f"http://{there}/v1/credentials?role={role}", b"", {}),
            ("GET", f"/v1/credentials?role=http://{there}/", b"", token),
            ("GET", f"/v1/credentials?role={role}&endpoint=http://{there}/", b"", token),
            ("GET", f"/v1/credentials?role={role}", b"", {**token, "Host": there}),
        ):
            status = _send(scene, method, target, body, headers).status
            expect(400 <= status < 500, True, f"{method} {target} {list(headers)}: {status}")
        scene.note(f"was asked {scene.sts.requests - before} times, for tokens that it refused")
        scene.sts.elsewhere = f"http://{there}/"
        try:
            status = _credentials(scene, 0, "ETL", scene.token())[0]
        finally:
            scene.sts.elsewhere = None
        expect(status >= 400, True, f"a redirection becomes {status}")
        expect(select.select([other], [], [], 0.5)[0], [], "connections to the other host")


def _too_large(scene: Scene) -> None:
    before, path = scene.sts.requests, f"/v1/credentials?role={quote(scene.roles['ETL'], safe='')}"
    for size in (300_000, 5_000_000):
        answer = _send(scene, "GET", path, headers={"authorization": "e" * size})
        expect(answer.status in TOO_LARGE, True, f"a token of {size} bytes: {answer.status}")
    head = f"Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn={scene.roles['ETL']}&WebIdentityToken="
    for size in (70_000, 50_000_000):
        answer = _send(scene, "POST", "/", head.encode() + b"e" * size)
        expect(answer.status in TOO_LARGE, True, f"a form of {size} bytes: {answer.status}")
    names = "&".join(f"{number:x}" for number in range(13_000))
    started = time.monotonic()
    expect(_send(scene, "POST", "/", names.encode()).status, 400, "a form of 13,000 parameters")
    scene.note(f"refuses 13,000 parameters after {time.monotonic() - started:.2f} s")
    expect(scene.sts.requests, before, "requests at STS")
    _key(scene)


def _forged(scene: Scene) -> None:
    known, (head, claims, signature) = _known(scene), scene.token().split(".")

    def forged(number: int) -> int:
        return _credentials(scene, number % 3, "ETL", f"{head}.{claims}.{number:04}{signature[4:]}")[0]

    with ThreadPoolExecutor(100) as pool:
        crowd = [pool.submit(forged, number) for number in range(500)]
        _key(scene)
        statuses = [each.result() for each in crowd]
    expect([each for each in statuses if each not in (400, 403)], [], "refusals")
    more = [now - before for before, now in zip(known, _known(scene), strict=True)]
    expect(max(more) <= 1, True, f"{more} more keys at the nodes")


def _crowd(scene: Scene) -> None:
    scene.s3(None, scene.owner).put_object(Bucket=BUCKET, Key="small", Body=b"small")
    tokens = [scene.token(subject=f"pod-{number}") for number in range(PODS)]
    scene.sts.forget()

    def pod(number: int) -> bytes:
        key = _patient(scene, number % 3, tokens[number])
        return scene.read((number + 1) % 3, key, "small").body

    started = time.monotonic()
    with ThreadPoolExecutor(PODS) as pool:
        bodies = list(pool.map(pod, range(PODS)))
    scene.note(f"{PODS} keys and reads in {time.monotonic() - started:.1f} s, {scene.sts.most} at STS at a time")
    expect({body: bodies.count(body) for body in bodies}, {b"small": PODS}, "what the pods read")
    expect(scene.sts.requests, PODS, "requests at STS")
    expect(scene.sts.most <= 3 * AT_STS_MAX, True, f"{scene.sts.most} requests at STS at a time")


def _crowd_with_one_token(scene: Scene) -> None:
    token = scene.token(subject="all of them")
    scene.sts.forget()
    scene.sts.pause_s = 0.2
    try:
        with ThreadPoolExecutor(PODS) as pool:
            keys = list(pool.map(lambda number: _patient(scene, number % 3, token), range(PODS)))
    finally:
        scene.sts.pause_s = 0
    scene.note(f"{PODS} pods with one token: {scene.sts.requests} requests at STS, {scene.sts.most} at a time")
    expect(len(set(keys)) <= scene.sts.requests, True, f"{len(set(keys))} different keys")
    expect(scene.sts.requests <= PODS // 10, True, f"{scene.sts.requests} requests at STS")
    expect(scene.sts.most <= 3, True, f"{scene.sts.most} requests at STS at a time")


def _down(scene: Scene) -> None:
    key = _key(scene)
    scene.sts.is_down = True
    try:
        for node in range(3):
            expect(_code(scene.read(node, key)), "200", "a key that was given before")
            status, document = _credentials(scene, node, "ETL", scene.token())
            expect((status, document["code"]), (503, "ServiceUnavailable"), "a new key")
        said = outcome(lambda: scene.asking(0, scene.owner).get_session_token())
        expect(said, (503, "ServiceUnavailable"), "of STS")
    finally:
        scene.sts.is_down = False
    expect(_code(scene.read(1, _key(scene))), "200", "a key that is given after")


def _key(scene: Scene, role: str = "ETL", subject: str = "pod") -> Account:
    """Returns a key that the first node gets."""
    return _patient(scene, 0, scene.token(role, subject), role)


def _patient(scene: Scene, node: int, token: str, role: str = "ETL") -> Account:
    """Returns a key; tries again, as SDKs do, where there are too many who want one.

    Ceph makes a user of each new subject, and answers 409 where two nodes ask for the first time at once.
    """
    for _ in range(5):
        status, document = _credentials(scene, node, role, token)
        if status not in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.CONFLICT):
            break
        time.sleep(1)
    expect(status, 200, f"a key for {role}: {document}")
    return account_of(document)


def _credentials(scene: Scene, node: int, role: str, token: str) -> tuple[int, dict[str, str]]:
    """Asks the endpoint of credentials of a node."""
    path = f"/v1/credentials?role={quote(scene.roles[role], safe='')}"
    answer = _answer(urlsplit(scene.cluster.sts_url(node)).netloc, "GET", path, headers={"authorization": token})
    return answer.status, json.loads(answer.body)


def _send(
    scene: Scene, method: str, target: str, body: bytes = b"", headers: Mapping[str, str] | None = None
) -> Answer:
    """Sends a request to the first node's port of credentials."""
    return _answer(urlsplit(scene.cluster.sts_url(0)).netloc, method, target, body, headers)


def _answer(
    where: str, method: str, target: str, body: bytes = b"", headers: Mapping[str, str] | None = None
) -> Answer:
    """Sends any request, and returns the answer, which may come before all of the body is sent."""
    sent = {"Host": where, "Content-Length": str(len(body)), **(headers or {})}
    connection = http.client.HTTPConnection(where, timeout=60)
    try:
        connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        for name, value in sent.items():
            connection.putheader(name, value)
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.endheaders(body or None)
        answer = connection.getresponse()
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
    finally:
        connection.close()


def _fetched(url: str) -> int:
    """Returns the number of bytes behind a URL, or the status of a refusal."""
    try:
        with urlopen(url, timeout=60) as answer:
            return len(answer.read())
    except HTTPError as refusal:
        return refusal.code


def _code(answer: Answer) -> str:
    """Returns the status of an answer and the code of its refusal."""
    return f"{answer.status} {_element(answer.body, 'Code') if answer.status >= 400 else ''}".strip()


def _element(xml: bytes, name: str) -> str:
    found = re.search(f"<{name}>([^<]*)</{name}>", xml.decode())
    return "" if found is None else found[1]


def _known(scene: Scene) -> list[int]:
    """Returns how many temporary keys each node knows."""
    metrics = (node.metrics() for node in scene.cluster.nodes)
    return [int(re.findall(r"^shoal_temporary_keys (\d+)", each, re.MULTILINE)[0]) for each in metrics]
