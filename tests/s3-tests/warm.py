"""A pytest plugin that reads every object whole before a test reads it, so that the test meets a warm cache."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from botocore.client import BaseClient
from botocore.exceptions import BotoCoreError, ClientError

READS = ("GetObject", "HeadObject")
# The parameters that name the object and open it; ranges and conditions stay with the test's own request.
NAMES = ("Bucket", "Key", "VersionId", "SSECustomerAlgorithm", "SSECustomerKey", "SSECustomerKeyMD5")

_call = BaseClient._make_api_call


def _call_warm(client: BaseClient, operation: str, parameters: dict[str, Any]) -> Any:
    if operation in READS:
        # Denied, absent, malformed: the test's own request will tell.
        with suppress(ClientError, BotoCoreError):
            _call(client, "GetObject", {name: parameters[name] for name in NAMES if name in parameters})["Body"].read()
    return _call(client, operation, parameters)


def pytest_configure() -> None:
    """Installs the doubled read."""
    BaseClient._make_api_call = _call_warm
