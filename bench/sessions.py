"""Measures hits of clients with a temporary key: `PYTHONPATH=tests python3 -m bench.sessions --shoal BIN`.

One node answers the same reads from its cache, in turn to an identity of its configuration and to a temporary key
that this identity got from the lake's STS by way of the node.
"""

from __future__ import annotations

import hashlib
import sys
import urllib.request
from urllib.parse import urlencode, urlsplit
from xml.etree import ElementTree

from real.lakes import Account, LakeUnavailable
from real.node import Node
from real.processes import free_port
from real.scratch import scratch
from real.signing import signed_headers

from bench.bed import BUCKET, KIB, MIB, contents
from bench.client import read
from bench.load import Get
from bench.report import Goal, Row, Spread
from bench.sides import append, measure, options_of
from bench.tier.bed import TierBed

SIZES, OBJECTS = (4 * KIB, 64 * KIB, MIB), 64
CONNECTIONS = (1, 16)
IDENTITY, SESSION = SIDES = ("identity", "temporary key")
STS = """
[sts]
roles = ["*"]
listen = "127.0.0.1:{port}"
"""
ASSUME = {"Action": "AssumeRole", "Version": "2011-06-15", "DurationSeconds": "3600"}


def main() -> int:
    """Measures and prints a page."""
    options, page, results = options_of(__doc__, OBJECTS)
    try:
        with scratch("shoal-sessions-") as folder, TierBed(options, folder, page) as bed:
            port = free_port()
            node = bed.enter(
                Node(
                    options.binary,
                    folder / "node",
                    bed.lake.url,
                    [bed.account],
                    freshness="immutable",
                    tables='[cooperation]\nsecret_key = "of the benchmark"\n' + STS.format(port=port),
                )
            )
            session = _session(f"http://127.0.0.1:{port}", bed.account)
            for size in SIZES:
                for number in range(OBJECTS):
                    get = Get(BUCKET, f"{size}-{number}")
                    body = bytes(contents(get.key, size))
                    bed.put(bed.lake.url, get.key, body)
                    read(node.url, bed.account, get, memoryview(body))
            node.settle()
            for size in SIZES:
                for connections in CONNECTIONS:
                    _measure(bed, node, session, size, connections)
    except LakeUnavailable as reason:
        print(f"skipped: {reason}")
        return 0
    append(page, results)
    return 0


def _session(url: str, account: Account) -> Account:
    """Gets a temporary key from the lake's STS by way of a node."""
    form = urlencode(ASSUME).encode()
    payload = hashlib.sha256(form).hexdigest()
    headers = signed_headers(account, "POST", urlsplit(url).netloc, "/", payload=payload, service="sts")
    with urllib.request.urlopen(urllib.request.Request(url + "/", form, headers), timeout=60) as answer:
        document = ElementTree.parse(answer)
    values = {element.tag.rpartition("}")[-1]: element.text or "" for element in document.iter()}
    return Account(values["AccessKeyId"], values["SecretAccessKey"], values["SessionToken"])


def _measure(bed: TierBed, node: Node, session: Account, size: int, connections: int) -> None:
    gets = [Get(BUCKET, f"{size}-{number}") for number in range(OBJECTS)]
    accounts = {IDENTITY: bed.account, SESSION: session}
    sides = measure(bed, SIDES, lambda name: (node, accounts[name], gets), connections)
    case = f"hit, {size // KIB} KiB, {connections} at once"
    shown = ", ".join(f"{name} {side}" for name, side in sides.items())
    one, another = sides[SESSION], sides[IDENTITY]
    p50 = [(load.p50_us, other.p50_us) for load, other in zip(one.loads, another.loads, strict=True)]
    for figure, pairs in (("p50", p50), ("processor time", list(zip(one.cpu_us, another.cpu_us, strict=True)))):
        spread = Spread.of([value / other for value, other in pairs])
        bed.page.add(Row(case, f"{figure}, {SESSION} to {IDENTITY}", spread, Goal(1.1), shown))


if __name__ == "__main__":
    sys.exit(main())
