"""Views of a bucket that ask for nothing that Hadoop would not ask for."""

from __future__ import annotations

from xml.etree import ElementTree

from real.lakes import Account
from real.processes import await_that
from real.wire import send

Listing = dict[str, tuple[str, int]]


def make(url: str, account: Account, bucket: str) -> None:
    """Makes a bucket. A store that has just begun says for a moment that it is not ready."""
    await_that(f"{url} has the bucket {bucket}", lambda: send(url, account, "PUT", bucket).status == 200)


def listing(url: str, account: Account, bucket: str) -> Listing:
    """Returns ETag and size of each key."""
    found: Listing = {}
    query = {"list-type": "2"}
    while True:
        page = _xml(url, account, bucket, query)
        for entry in page.iterfind("{*}Contents"):
            found[entry.findtext("{*}Key", "")] = (entry.findtext("{*}ETag", ""), int(entry.findtext("{*}Size", "")))
        token = page.findtext("{*}NextContinuationToken")
        if not token:
            return found
        query = {**query, "continuation-token": token}


def uploads(url: str, account: Account, bucket: str) -> list[str]:
    """Returns the keys of uploads that were begun and neither completed nor aborted."""
    page = _xml(url, account, bucket, {"uploads": ""})
    return sorted(entry.findtext("{*}Key", "") for entry in page.iterfind("{*}Upload"))


def _xml(url: str, account: Account, bucket: str, query: dict[str, str]) -> ElementTree.Element:
    answer = send(url, account, "GET", bucket, query=query)
    if answer.status != 200:
        raise RuntimeError(f"{url} did not list {bucket}: {answer.status} {answer.body!r}")
    return ElementTree.fromstring(answer.body)
