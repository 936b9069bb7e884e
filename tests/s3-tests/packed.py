"""A pytest plugin that has everything packed before each request, so that the test meets packed objects.

Nodes hide packs from the suite, so the plugin removes them at the lake before their bucket is removed.
"""

from __future__ import annotations

import json
import os
import threading
import time
import urllib.request
from typing import Any

import boto3
from botocore.client import BaseClient
from botocore.exceptions import ClientError

# The URL of the lake and its account that may do everything, with spaces between them.
LAKE = "SHOAL_LAKE"
# The URL of a node's admin port.
ADMIN = "SHOAL_ADMIN"
_FOLDER = ".shoal-pack/"
_PAUSE_S = 0.02
_TRIES = 3

_call = BaseClient._make_api_call
_lock = threading.Lock()


def pytest_configure() -> None:
    """Installs the flushes, and has the suite clear its buckets so."""
    from s3tests import functional  # noqa: PLC0415 - pytest knows its folder only now

    BaseClient._make_api_call = _call_packed
    lake = client_of(*os.environ[LAKE].split())
    clear_at_nodes = functional.nuke_bucket

    def clear(client: Any, bucket: str) -> Any:
        try:
            return clear_at_nodes(client, bucket)
        except ClientError as error:
            if not _is_not_empty(error):
                raise
        for attempt in range(_TRIES):
            remove(lake, bucket, _FOLDER)
            try:
                return lake.delete_bucket(Bucket=bucket)
            except ClientError as error:
                # The keeper of its map may have written a table meanwhile.
                if attempt + 1 == _TRIES or not _is_not_empty(error):
                    raise
        return None

    functional.nuke_bucket = clear


def _is_not_empty(error: ClientError) -> bool:
    return bool(error.response["Error"]["Code"] == "BucketNotEmpty")


def client_of(url: str, access_key: str, secret_key: str) -> Any:
    """Returns a client of a lake itself."""
    return boto3.client("s3", endpoint_url=url, aws_access_key_id=access_key, aws_secret_access_key=secret_key)


def _call_packed(client: BaseClient, operation: str, parameters: dict[str, Any]) -> Any:
    # The requests of one test in several threads are sent side by side, as nothing may be dirty by then.
    if "Bucket" in parameters and operation != "CreateBucket" and _lock.acquire(blocking=False):
        try:
            _flush(os.environ[ADMIN])
        finally:
            _lock.release()
    return _call(client, operation, parameters)


def _flush(admin: str) -> None:
    """Brings all objects to the lake that are dirty on any node."""
    with urllib.request.urlopen(urllib.request.Request(f"{admin}/flush", method="POST"), timeout=10) as answer:
        answer.read()
    while True:
        with urllib.request.urlopen(f"{admin}/status", timeout=10) as answer:
            if not json.load(answer)["write_back"]["flush"]["running"]:
                return
        time.sleep(_PAUSE_S)


def remove(lake: Any, bucket: str, prefix: str = "") -> None:
    """Removes all versions of the objects of a bucket whose keys begin with a prefix."""
    for page in lake.get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=prefix):
        for each in (*page.get("Versions", []), *page.get("DeleteMarkers", [])):
            # One by one: Ceph asks the policy of the bucket about the names of a longer list, whoever sends it.
            lake.delete_object(Bucket=bucket, Key=each["Key"], VersionId=each["VersionId"])
