"""A pytest plugin that gives the suite's users temporary keys, which they get from an STS for their lasting ones."""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import os
from dataclasses import dataclass
from typing import Any

import boto3
import requests
from botocore.session import Session

# The action by which an STS gives keys, and its URLs, with spaces between them. Each user goes to the next URL.
STS = "SHOAL_STS"
# The other users of the suite are those of IAM, which sessions may not change.
USERS = ("main", "alt", "tenant")
# Boto3 sends no `AssumeRole` without a role and a name. MinIO reads neither.
ROLE = "arn:minio:iam:::role/of-nobody"
_PARAMETERS = {"GetSessionToken": {}, "AssumeRole": {"RoleArn": ROLE, "RoleSessionName": "suite"}}
_LIFE_S = 12 * 3600

# A policy of a form must name the token that the form has.
_CONDITIONS = b'"conditions": ['
_OF_TOKEN = b'["starts-with", "$x-amz-security-token", ""], '

_create_client = Session.create_client
_post = requests.post


@dataclass(frozen=True)
class TemporaryKey:
    """The secrets that belong to an access key."""

    secret_key: str
    token: str

    def sign(self, policy: bytes) -> bytes:
        """Returns the signature of a form by version 2, the only one that the suite sends."""
        return base64.b64encode(hmac.digest(self.secret_key.encode(), policy, hashlib.sha1))


_keys: dict[str, TemporaryKey] = {}


def pytest_configure() -> None:
    """Has the suite get temporary keys when it reads its configuration, and send their tokens."""
    from s3tests import functional  # noqa: PLC0415 - pytest knows its folder only now

    action, *urls = os.environ[STS].split()
    configure = functional.configure

    def configure_with_keys() -> None:
        configure()
        for user, url in zip(USERS, itertools.cycle(urls), strict=False):
            _exchange(functional.config, user, action, url)

    functional.configure = configure_with_keys
    Session.create_client = _create_client_with_token
    requests.post = _post_with_token


def _exchange(config: Any, user: str, action: str, url: str) -> None:
    """Replaces a user's key in the configuration of the suite."""
    access_key, secret_key = f"{user}_access_key", f"{user}_secret_key"
    sts = boto3.client(
        "sts",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id=getattr(config, access_key),
        aws_secret_access_key=getattr(config, secret_key),
    )
    found = sts._make_api_call(action, {"DurationSeconds": _LIFE_S, **_PARAMETERS[action]})["Credentials"]
    setattr(config, access_key, found["AccessKeyId"])
    setattr(config, secret_key, found["SecretAccessKey"])
    _keys[found["AccessKeyId"]] = TemporaryKey(found["SecretAccessKey"], found["SessionToken"])


def _create_client_with_token(session: Session, *arguments: Any, **named: Any) -> Any:
    if (key := _keys.get(named.get("aws_access_key_id"))) is not None:
        named["aws_session_token"] = key.token
    return _create_client(session, *arguments, **named)


def _post_with_token(url: str, files: dict[str, Any] | None = None, **named: Any) -> requests.Response:
    files = files or {}
    key = _keys.get(files.get("AWSAccessKeyId"))
    # One test writes the name of this field in another way.
    policy = next((name for name in files if name.lower() == "policy"), "")
    # A form that is signed wrongly on purpose stays as it is.
    if key is not None and files.get("signature") == key.sign(files.get(policy, b"")):
        conditions = base64.b64decode(files[policy]).replace(_CONDITIONS, _CONDITIONS + _OF_TOKEN, 1)
        signed = base64.b64encode(conditions)
        files = {"x-amz-security-token": key.token, **files, policy: signed, "signature": key.sign(signed)}
    return _post(url, files=files, **named)
