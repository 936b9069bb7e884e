"""Clients of AWS's SDK for Python, and its documents. Only suites that have boto3 can use it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import boto3
from botocore.client import BaseClient
from botocore.config import Config

from .lakes import REGION, Account


def client(service: str, url: str, account: Account, **config: Any) -> BaseClient:
    """Returns a client that signs with an account; `config` is what botocore's `Config` takes."""
    return boto3.client(
        service,
        endpoint_url=url,
        region_name=REGION,
        aws_access_key_id=account.access_key,
        aws_secret_access_key=account.secret_key,
        aws_session_token=account.session_token,
        # Old Cephs do not know what the newest SDKs send otherwise.
        config=Config(**{"request_checksum_calculation": "when_required", **config}),
    )


def account_of(credentials: Mapping[str, str]) -> Account:
    """Returns the account of an answer of STS, or of a document of the endpoint of credentials."""
    token = credentials.get("SessionToken") or credentials["Token"]
    return Account(credentials["AccessKeyId"], credentials["SecretAccessKey"], token)


def variables(account: Account) -> dict[str, str]:
    """Returns the environment in which SDKs sign with an account."""
    return {
        "AWS_ACCESS_KEY_ID": account.access_key,
        "AWS_SECRET_ACCESS_KEY": account.secret_key,
        **({} if account.session_token is None else {"AWS_SESSION_TOKEN": account.session_token}),
    }


def policy(*statements: Mapping[str, object]) -> str:
    """Returns a policy document."""
    # Ceph does not take a plus in a form for a blank.
    return json.dumps({"Version": "2012-10-17", "Statement": statements}, separators=(",", ":"))
