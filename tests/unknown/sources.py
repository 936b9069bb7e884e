"""A node that asks Ceph's admin API for keys: the guest is an identity like any other until the lake suspends it."""

from __future__ import annotations

from botocore.exceptions import ClientError
from real.lakes import Account
from real.node import Node
from real.processes import await_that
from real.report import Difference
from real.wire import send

from .lakes import SHARED
from .scene import Scene, expect

_TABLES = """
[[key_source]]
kind = "ceph"
access_key = "{access_key}"
secret_key = "{secret_key}"
cache_time = "1s"
"""


def run(scene: Scene) -> None:
    """Runs all checks at a node of their own."""
    name = "key source"
    if scene.place.lake.name != "ceph":
        scene.skip(name, "only Ceph has this admin API")
        return
    lake, guest = scene.place.lake, scene.place.guest
    tables = _TABLES.format(access_key=lake.account.access_key, secret_key=lake.account.secret_key)
    with Node(scene.binary, scene.folder / "key-source", lake.url, [], name="key-source", tables=tables) as node:
        client = scene.client_of(node)
        with scene.check(name, "a user of the lake is an identity of the node"):
            client.put_object(Bucket=SHARED, Key="sourced", Body=b"by a key source")
            for _ in range(2):
                expect(client.get_object(Bucket=SHARED, Key="sourced")["Body"].read(), b"by a key source")
            if f'identity="{guest.access_key}"' not in node.metrics():
                raise Difference("the node does not count the guest as an identity")
        with scene.check(name, "a key that the lake does not know is unknown here"):
            stranger = Account("nobodyskey", "nobodyssecret")
            expect(_refusal(scene, node, stranger), "InvalidAccessKeyId")
        with scene.check(name, "a wrong secret is refused by the node"):
            expect(_refusal(scene, node, Account(guest.access_key, "wrong")), "SignatureDoesNotMatch")
        with scene.check(name, "a user whom the lake suspends ends within the time of an answer"):
            _suspend(scene, suspended=True)
            await_that("the key has ended", lambda: _refusal(scene, node, guest) == "InvalidAccessKeyId")
            _suspend(scene, suspended=False)
            await_that("the key is back", lambda: _refusal(scene, node, guest) == "")


def _refusal(scene: Scene, node: Node, account: Account) -> str:
    """Returns the error code of a read; nothing if it succeeds."""
    try:
        scene.client_of(node, account).get_object(Bucket=SHARED, Key="sourced")["Body"].read()
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return ""


def _suspend(scene: Scene, *, suspended: bool) -> None:
    lake = scene.place.lake
    query = {"suspended": str(int(suspended)), "uid": "guest"}
    answer = send(lake.url, lake.account, "POST", "admin", "user", query=query)
    expect(answer.status, 200, "the admin API")
