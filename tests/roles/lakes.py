"""Lakes with two roles, ETL and BLIND, for clients with tokens of an issuer; the audience is the name of the role."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import boto3
from real.lakes import REGION, Lake, ceph, minio

from .issuer import Issuer

# A role that may do everything, and one that may write and not read.
ROLES = {"ETL": ["s3:*"], "BLIND": ["s3:PutObject"]}
_MINIO_POLICIES = {"ETL": "readwrite", "BLIND": "writeonly"}

# A lake, and the ARNs of its roles by name; that of OTHER is listed nowhere.
Roles = dict[str, str]


@contextmanager
def _minio(folder: Path, issuer: Issuer) -> Iterator[tuple[Lake, Roles]]:
    environment = {}
    for role, policy in _MINIO_POLICIES.items():
        environment[f"MINIO_IDENTITY_OPENID_CONFIG_URL_{role}"] = f"{issuer.url}/.well-known/openid-configuration"
        environment[f"MINIO_IDENTITY_OPENID_CLIENT_ID_{role}"] = role
        environment[f"MINIO_IDENTITY_OPENID_ROLE_POLICY_{role}"] = policy
    with minio.start(folder, environment=environment) as lake:
        yield lake, {role: _minio_arn(role) for role in (*ROLES, "OTHER")}


def _minio_arn(role: str) -> str:
    """Returns the ARN that MinIO gives the role of an OpenID provider: it follows from the client id."""
    digest = hashlib.sha1(role.encode(), usedforsecurity=False).digest()
    return "arn:minio:iam:::role/" + base64.urlsafe_b64encode(digest).decode().rstrip("=")


@contextmanager
def _ceph(folder: Path, issuer: Issuer) -> Iterator[tuple[Lake, Roles]]:
    gateway = "rgw_sts_key = sixteen letters!\nrgw_s3_auth_use_sts = true"
    with ceph.start(folder, gateway=gateway, capabilities="roles=*;oidc-provider=*") as lake:
        client = {
            "endpoint_url": lake.url,
            "region_name": REGION,
            "aws_access_key_id": lake.account.access_key,
            "aws_secret_access_key": lake.account.secret_key,
        }
        iam = boto3.client("iam", **client)
        provider = iam.create_open_id_connect_provider(
            Url=issuer.url, ClientIDList=list(ROLES), ThumbprintList=[issuer.thumbprint]
        )["OpenIDConnectProviderArn"]
        for role, actions in ROLES.items():
            name = issuer.url.removeprefix("http://")
            trust = {
                "Effect": "Allow",
                "Principal": {"Federated": [provider]},
                "Action": ["sts:AssumeRoleWithWebIdentity"],
                "Condition": {"StringEquals": {f"{name}:app_id": role}},
            }
            rights = {"Effect": "Allow", "Action": actions, "Resource": "arn:aws:s3:::*"}
            iam.create_role(RoleName=role, AssumeRolePolicyDocument=_policy(trust))
            iam.put_role_policy(RoleName=role, PolicyName="rights", PolicyDocument=_policy(rights))
        yield lake, {role: f"arn:aws:iam:::role/{role}" for role in (*ROLES, "OTHER")}


def _policy(statement: dict[str, object]) -> str:
    # Ceph does not take a plus in a form for a blank.
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]}, separators=(",", ":"))


LAKES: dict[str, Callable[[Path, Issuer], AbstractContextManager[tuple[Lake, Roles]]]] = {
    "minio": _minio,
    "ceph": _ceph,
}
