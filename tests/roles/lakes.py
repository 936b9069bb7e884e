"""Lakes with two roles, ETL and BLIND, for clients with tokens of an issuer; the audience is the name of the role."""

from __future__ import annotations

import base64
import hashlib
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.metadata import version
from pathlib import Path

from botocore.client import BaseClient
from real.aws import client, policy
from real.lakes import Account, Lake, ceph, minio
from real.processes import Process, answers, free_port

from .issuer import Issuer

# A role that may do everything, and one that may write and not read.
ROLES = {"ETL": ["s3:*", "sts:AssumeRole"], "BLIND": ["s3:PutObject"]}
_MINIO_POLICIES = {"ETL": "readwrite", "BLIND": "writeonly"}

# A lake, and the ARNs of its roles by name; that of OTHER is listed nowhere.
Roles = dict[str, str]


@contextmanager
def _minio(folder: Path, issuer: Issuer) -> Iterator[tuple[Lake, Roles]]:
    environment = {}
    for role, rights in _MINIO_POLICIES.items():
        environment[f"MINIO_IDENTITY_OPENID_CONFIG_URL_{role}"] = f"{issuer.url}/.well-known/openid-configuration"
        environment[f"MINIO_IDENTITY_OPENID_CLIENT_ID_{role}"] = role
        environment[f"MINIO_IDENTITY_OPENID_ROLE_POLICY_{role}"] = rights
    with minio.start(folder, environment=environment) as lake:
        yield lake, {role: _minio_arn(role) for role in (*ROLES, "OTHER")}


def _minio_arn(role: str) -> str:
    """Returns the ARN that MinIO gives the role of an OpenID provider: it follows from the client id."""
    digest = hashlib.sha1(role.encode(), usedforsecurity=False).digest()
    return "arn:minio:iam:::role/" + base64.urlsafe_b64encode(digest).decode().rstrip("=")


@contextmanager
def _ceph(folder: Path, issuer: Issuer) -> Iterator[tuple[Lake, Roles]]:
    with ceph.start(folder, gateway=ceph.STS, capabilities="roles=*;oidc-provider=*;user-policy=*") as lake:
        iam = client("iam", lake.url, lake.account)
        sessions = policy({"Effect": "Allow", "Action": ["sts:GetSessionToken"], "Resource": "*"})
        iam.put_user_policy(UserName="lake", PolicyName="sessions", PolicyDocument=sessions)
        yield lake, _make_roles(iam, issuer, "app_id")


@contextmanager
def _moto(folder: Path, issuer: Issuer) -> Iterator[tuple[Lake, Roles]]:
    port = free_port()
    # The first three requests make the owner; from then on moto checks all.
    environment = {"INITIAL_NO_AUTH_ACTION_COUNT": "3"}
    command = [sys.executable, "-m", "roles.judging_moto", str(port)]
    server = Process(command, folder / "moto.log", env=environment)
    lake = Lake("moto", version("moto"), f"http://127.0.0.1:{port}", Account("nobody", "nothing"), processes=[server])
    with lake:
        server.wait_until(lambda: answers(port), 60)
        iam = client("iam", lake.url, lake.account)
        everything = policy({"Effect": "Allow", "Action": ["*"], "Resource": "*"})
        iam.create_user(UserName="owner")
        iam.put_user_policy(UserName="owner", PolicyName="everything", PolicyDocument=everything)
        key = iam.create_access_key(UserName="owner")["AccessKey"]
        lake.account = Account(key["AccessKeyId"], key["SecretAccessKey"])
        yield lake, _make_roles(client("iam", lake.url, lake.account), issuer, "aud")


def _make_roles(iam: BaseClient, issuer: Issuer, audience: str) -> Roles:
    """Makes roles that trust tokens of the issuer; ETL trusts all whom the lake knows, too.

    `audience` is what the lake calls the audience of a token.
    """
    arn = iam.create_open_id_connect_provider(
        Url=issuer.url, ClientIDList=list(ROLES), ThumbprintList=[issuer.thumbprint]
    )["OpenIDConnectProviderArn"]
    arns = {}
    for role, actions in ROLES.items():
        tokens = {
            "Effect": "Allow",
            "Principal": {"Federated": arn},
            "Action": ["sts:AssumeRoleWithWebIdentity"],
            "Condition": {"StringEquals": {f"{issuer.url.removeprefix('http://')}:{audience}": role}},
        }
        all_known = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": ["sts:AssumeRole"]}
        trust = policy(tokens, *([all_known] if role == "ETL" else []))
        arns[role] = iam.create_role(RoleName=role, AssumeRolePolicyDocument=trust)["Role"]["Arn"]
        give_rights(iam, role, actions)
    return {**arns, "OTHER": arns["ETL"].replace("ETL", "OTHER")}


def give_rights(iam: BaseClient, role: str, actions: list[str]) -> None:
    """Lets a role do this from now on, and nothing else."""
    rights = policy({"Effect": "Allow", "Action": actions, "Resource": "*"})
    iam.put_role_policy(RoleName=role, PolicyName="rights", PolicyDocument=rights)


LAKES: dict[str, Callable[[Path, Issuer], AbstractContextManager[tuple[Lake, Roles]]]] = {
    "minio": _minio,
    "ceph": _ceph,
    "moto": _moto,
}
