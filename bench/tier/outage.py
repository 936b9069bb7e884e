"""Writes into a tier whose lake is down for two minutes: what clients notice, and how long the backlog takes."""

from __future__ import annotations

import http.client
import threading
import time
from dataclasses import dataclass, field
from statistics import median
from urllib.parse import urlsplit

from real.processes import await_that
from real.signing import encode_path, signed_headers
from real.wire import send

from bench.bed import BUCKET, KIB, contents
from bench.report import Row, Spread

from .bed import BACK, TierBed, at_etcd, dirty_objects, tables
from .delay import DelayRelay

LAKE_S = 0.02
BEFORE_S, DOWN_S = 30.0, 120.0
SIZE = 4 * KIB
# Each writer sends an object, waits for its answer, and rests: some 40 writes a second in all.
WRITERS, REST_S = 4, 0.1
DRAINED_S = 600.0


@dataclass
class Writes:
    """What the writers saw: seconds of each acknowledged write by phase, and the answers that were no success."""

    phase: str = "before"
    seconds: dict[str, list[float]] = field(default_factory=lambda: {"before": [], "down": [], "after": []})
    keys: list[str] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, key: str, status: int, seconds: float) -> None:
        """Counts one write."""
        with self.lock:
            if status == 200:
                self.keys.append(key)
                self.seconds[self.phase].append(seconds)
            else:
                answer = f"{status} {self.phase}"
                self.refused[answer] = self.refused.get(answer, 0) + 1


def run(bed: TierBed) -> None:
    """Writes before, while and after the lake is down, and waits until the lake has everything."""
    store, etcd = bed.store(), bed.etcd()
    relay = DelayRelay(bed.lake.url, LAKE_S)
    far = relay.__enter__()
    node = bed.node("node", tables(at_etcd(store, etcd.endpoints), "5s"), lake_url=far.url)
    writes, over = Writes(), threading.Event()
    writers = [threading.Thread(target=_write, args=(bed, node.url, number, writes, over)) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    time.sleep(BEFORE_S)
    writes.phase = "down"
    relay.__exit__()
    time.sleep(DOWN_S)
    backlog = dirty_objects(node)
    writes.phase = "after"
    with DelayRelay(bed.lake.url, LAKE_S, port=urlsplit(far.url).port or 0):
        up = time.monotonic()
        over.set()
        for writer in writers:
            writer.join()
        await_that("the lake has the backlog", lambda: dirty_objects(node) == 0, DRAINED_S)
        drained_s = time.monotonic() - up
    missing = [key for key in writes.keys if send(bed.lake.url, bed.account, "HEAD", BUCKET, key).status != 200]
    if missing:
        raise RuntimeError(f"{len(missing)} acknowledged objects are not at the lake, such as {missing[0]}")
    before, down = (writes.seconds[phase] for phase in ("before", "down"))
    answers = ", ".join(f"{count} × {answer}" for answer, count in sorted(writes.refused.items())) or "none refused"
    detail = (
        f"{len(before)} writes before, {len(down)} in {DOWN_S:.0f} s without a lake; {answers}; "
        f"backlog {backlog}, at the lake {drained_s:.0f} s after it was back"
    )
    ratio = Spread.of([median(down) / median(before)]) if down else Spread(float("inf"), 0, 0)
    bed.page.add(Row(f"lake down, {SIZE // KIB} KiB", "p50, down to before", ratio, None, detail))


def _write(bed: TierBed, url: str, writer: int, writes: Writes, over: threading.Event) -> None:
    host, number = urlsplit(url).netloc, 0
    connection = http.client.HTTPConnection(host, timeout=60)
    while not over.is_set():
        key = f"{BACK}outage-{writer}-{number}"
        number += 1
        path = encode_path(BUCKET, key)
        headers = signed_headers(bed.account, "PUT", host, path, headers={"x-shoal-write": "back"})
        began = time.perf_counter()
        try:
            connection.request("PUT", path, bytes(contents(key, SIZE)), headers)
            answer = connection.getresponse()
            answer.read()
            status = answer.status
        except (OSError, http.client.HTTPException):
            connection.close()
            status = 0
        writes.note(key, status, time.perf_counter() - began)
        over.wait(REST_S)
    connection.close()
