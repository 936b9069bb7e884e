"""What STS gives and refuses, by way of a node and at the lake itself, and what the keys may do then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from botocore.client import BaseClient
from real.aws import account_of, policy
from real.lakes import Account, Lake
from real.report import Difference, Report

from . import attacks
from .issuer import Issuer
from .lakes import Roles
from .scene import BUCKET, Outcome, Scene, expect, outcome

# A question to STS.
Ask = Callable[[Scene, BaseClient], dict[str, Any]]

_READS = {"Effect": "Allow", "Action": ["s3:GetObject"], "Resource": ["arn:aws:s3:::*"]}
READS_ONLY = policy(_READS)


def _role(role: str = "ETL", name: str = "session", **more: object) -> Ask:
    return lambda scene, sts: sts.assume_role(RoleArn=scene.roles[role], RoleSessionName=name, **more)


def _session(**more: object) -> Ask:
    return lambda _, sts: sts.get_session_token(**more)


def _token(role: str = "ETL", of: Callable[[Scene, str], str] = Scene.token, **more: object) -> Ask:
    return lambda scene, sts: sts.assume_role_with_web_identity(
        RoleArn=scene.roles[role], RoleSessionName="session", WebIdentityToken=of(scene, role), **more
    )


def _foreign(scene: Scene, _: str) -> str:
    return scene.token("BLIND")


def _expired(scene: Scene, role: str) -> str:
    return scene.token(role, life_s=-60)


def _forged(scene: Scene, role: str) -> str:
    """Returns the claims of a token with the signature of another."""
    return scene.token(role).rpartition(".")[0] + "." + scene.token("BLIND").rpartition(".")[2]


# The questions, and the lakes that give a key; None for all of them.
QUESTIONS: dict[str, tuple[Ask, Sequence[str] | None]] = {
    "AssumeRole": (_role(), None),
    "AssumeRole for a quarter of an hour": (_role(DurationSeconds=900), None),
    "AssumeRole for longer than allowed": (_role(DurationSeconds=10_000_000), ["minio", "moto"]),
    "AssumeRole with a policy of the session": (_role(Policy=READS_ONLY), None),
    "AssumeRole by too long a name": (_role(name="n" * 65), ["minio"]),
    "AssumeRole without trust in the user": (_role("BLIND"), ["minio"]),
    "GetSessionToken": (_session(), ["ceph", "moto"]),
    "GetSessionToken for an hour": (_session(DurationSeconds=3600), ["ceph", "moto"]),
    "AssumeRoleWithWebIdentity": (_token(), None),
    "AssumeRoleWithWebIdentity of a role that may not read": (_token("BLIND"), None),
    "AssumeRoleWithWebIdentity with a policy of the session": (_token(Policy=READS_ONLY), None),
    "AssumeRoleWithWebIdentity for another audience": (_token(of=_foreign), []),
    "AssumeRoleWithWebIdentity with an expired token": (_token(of=_expired), []),
    "AssumeRoleWithWebIdentity with a forged token": (_token(of=_forged), []),
    "AssumeRoleWithWebIdentity with what is no token": (_token(of=lambda *_: "no.token.atall"), []),
}


def run(report: Report, lake: Lake, roles: Roles, issuer: Issuer, binary: Path, folder: Path) -> None:
    """Runs all checks at nodes that know the owner of the lake."""
    with Scene.of(report, lake, roles, issuer, binary, folder) as scene:
        for name, (ask, given) in QUESTIONS.items():
            with scene.check("STS", name):
                _compare(scene, ask, given)
        with scene.check("STS", "AssumeRole by way of a role"):
            _chain(scene)
        with scene.check("STS", "with a secret that is wrong, and of nobody"):
            _strangers(scene)
        attacks.run(scene)
        with scene.check("nodes", "that know an identity have no secret in their logs"):
            logs = "".join(node.log.read_text(errors="replace") for node in scene.cluster.nodes)
            secrets = ("eyJ", "SecretAccessKey", lake.account.secret_key, "ERROR", "panicked")
            expect([each for each in secrets if each in logs], [])


def _compare(scene: Scene, ask: Ask, given: Sequence[str] | None) -> None:
    """Asks the STS of the lake, and then that of a node; both keys may do the same."""
    direct, key = _answer(scene, None, scene.owner, ask)
    relayed, key_of_node = _answer(scene, 0, scene.owner, ask)
    if key is None:
        scene.note(f"says {direct}")
    expect(relayed, direct, "the answer")
    expect(key is not None, given is None or scene.lake.name in given, f"a key by {direct}")
    if key is not None and key_of_node is not None:
        rights = _rights(scene.s3(None, key))
        for node in (1, 2, 1):
            expect(_rights(scene.s3(node, key_of_node)), rights, f"what the key may do at node {node + 1}")


def _answer(scene: Scene, node: int | None, asker: Account, ask: Ask) -> tuple[Outcome, Account | None]:
    keys: list[Account] = []

    def call() -> dict[str, Any]:
        answer = ask(scene, scene.asking(node, asker))
        keys.append(account_of(answer["Credentials"]))
        return answer

    said = outcome(call)
    return said, keys[0] if keys else None


def _rights(s3: BaseClient) -> list[Outcome]:
    """Returns what a key may do: read, write, list."""
    return [
        outcome(lambda: {"bytes": len(s3.get_object(Bucket=BUCKET, Key="hot")["Body"].read())}),
        outcome(lambda: {"ETag": s3.put_object(Bucket=BUCKET, Key="written", Body=b"written")["ETag"]}),
        outcome(lambda: {"keys": len(s3.list_objects_v2(Bucket=BUCKET, Prefix="hot").get("Contents", []))}),
    ]


def _chain(scene: Scene) -> None:
    """Assumes a role with the key of a role; the second node asks, and knows that from the first."""
    first, key = _answer(scene, None, scene.owner, _token())
    relayed, key_of_node = _answer(scene, 0, scene.owner, _token())
    if key is None or key_of_node is None:
        raise Difference(f"no key to begin with: {first}, {relayed}")
    direct, key = _answer(scene, None, key, _role(name="chained"))
    relayed, key_of_node = _answer(scene, 1, key_of_node, _role(name="chained"))
    expect(relayed, direct, "the answer")
    expect(key is not None, scene.lake.name != "minio", "a key")
    if key is not None and key_of_node is not None:
        expect(_rights(scene.s3(2, key_of_node)), _rights(scene.s3(None, key)), "what the key may do")


def _strangers(scene: Scene) -> None:
    """The node refuses them as the STS does, which it does not ask."""
    mine = scene.lake.account.access_key
    for account in (Account(mine, "another secret"), Account("AKIANOBODYNOBODYNOBO", "secret")):
        direct, _ = _answer(scene, None, account, _session())
        before = scene.sts.requests
        relayed, _ = _answer(scene, 0, account, _session())
        scene.note(f"says {direct} to {account.access_key}, and a node {relayed}")
        expect((relayed[0], scene.sts.requests), (403, before), "the status, and requests at STS")
