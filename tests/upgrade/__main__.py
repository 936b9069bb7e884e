"""A rolling upgrade: `python -m upgrade --old BIN --new BIN`; see `tests/upgrade/run.sh`.

Three nodes of one build, with an etcd and a store for what they write back, are replaced one after the other by
another build, on the same folders, and then by the first build again. Clients read and write through all of them
meanwhile. Nothing is refused, nothing is lost, and caches survive.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from net.hand import Upload, body
from real import tier
from real.cluster import NODES, Cluster
from real.etcd import EtcdUnavailable
from real.lakes import Lake, LakeUnavailable, versitygw
from real.processes import StartError, await_that, run
from real.report import Difference, Report, Skip
from real.scratch import scratch
from real.together import knows
from real.wire import send

from .traffic import Client, Ledger, Traffic

BUCKET = "shoal"
# Below the first, objects go to the lake after seconds, below the second in packs; below the third they stay.
PREFIXES = BACK, PACKED, KEPT = "back/", "packed/", "kept/"
FIXED = "fixed/"
# Objects that no client reads, so that only the test itself brings them to a node.
_QUIET, _COLD = "quiet/", "cold/"
_AGE = "3s"
_PART_BYTES = 5 << 20
# Clients work for so long with each mixture of builds.
_MIXED_S = 4
# A node ends the requests in flight within seconds; `Process.stop` kills it after 20 s.
_STOP_S = 19
_KNOWN_S = 30
# `unfinished` is also a node that stopped in the middle of a handshake.
_DOUBTS = re.compile(
    r'^(shoal_peer_(?:answers_total\{.*"misunderstood"|mistrusted_total\{reason="(?!unfinished)).*) ([1-9]\d*)$',
    re.MULTILINE,
)
# A node prints this about a store that another build has written.
_OTHER_FORMAT = re.compile(r"its format is .*, this node reads .*")
_DISAGREEMENTS = ("gossip-rejected", "configured-differently", "flush-refused", "wrong-bytes")


class NoWayError(Exception):
    """A build refuses the files of the other one; the message is the one it prints."""


@dataclass
class Build:
    """A program, and what the output calls it."""

    word: str
    binary: Path

    def __str__(self) -> str:
        version = run([self.binary, "--version"]).strip()
        return f"{self.word}: {self.binary} ({version}, {sha256(self.binary.read_bytes()).hexdigest()[:12]})"


@dataclass
class Story:
    """The cluster, its clients and what they wrote."""

    cluster: Cluster
    lake: Lake
    ledger: Ledger
    hand: Client = field(init=False)

    def __post_init__(self) -> None:
        self.hand = self.client()

    def client(self) -> Client:
        """Returns a client of all nodes."""
        return Client([node.url for node in self.cluster.nodes], self.lake.account, BUCKET, self.ledger)

    def begin(self) -> None:
        """Fills the lake, starts the nodes, and brings the objects to the cache of each."""
        await_that("the lake has a bucket", lambda: self._at_lake("PUT").status == 200)
        for key, name in self.ledger.fixed.items():
            self._at_lake("PUT", key, body(name))
        keeper = self.lake.account.access_key
        place = tier.Place.of(self.cluster.store, self.cluster.etcd)
        near = tier.tables(place, _AGE, [f"s3://{BUCKET}/{BACK}"], kept=[f"s3://{BUCKET}/{KEPT}"])
        packs = tier.RULE.format(prefix=f"s3://{BUCKET}/{PACKED}") + tier.PACKED.format(keeper=keeper)
        self.cluster.restart(near + packs)
        for key, name in self.ledger.fixed.items():
            if not key.startswith(_COLD):
                for node in range(NODES):
                    self.hand.check(node, key, name)

    def replace(self, number: int, build: Build, *, is_drained: bool) -> str:
        """Stops a node and starts this build in its place, on the same folder. Returns what it had kept."""
        node = self.cluster.nodes[number]
        self.quarrels()
        node.settle()
        if is_drained:
            run([node.binary, "node", "drain", "--node", node.admin])
        began = time.monotonic()
        node.stop()
        if time.monotonic() - began > _STOP_S:
            raise Difference(f"{node.name} did not stop within {_STOP_S} s")
        was, node.binary = node.binary, build.binary
        try:
            node.start()
        except StartError as error:
            # A build may refuse the files of a later one, as long as it says so, and leaves them as they are.
            node.binary = was
            node.start()
            refusal = _OTHER_FORMAT.search(str(error))
            if refusal is None:
                raise
            raise NoWayError(refusal[0]) from error
        try:
            await_that("the nodes know each other", self._is_whole, _KNOWN_S)
        except TimeoutError:
            # Raises with the reason, if there is one.
            self.quarrels()
            raise
        return self._survived(number)

    def order(self, number: int) -> None:
        """Has a node run a task that all nodes take part in."""
        node = self.cluster.nodes[number]
        run([node.binary, "prefetch", f"s3://{BUCKET}/{_COLD}", "--wait", "--node", node.admin], timeout_s=60)
        run([node.binary, "evict", f"s3://{BUCKET}/{_COLD}", "--node", node.admin], timeout_s=60)

    def quarrels(self) -> None:
        """Raises if a node does not understand or trust another one."""
        for node in self.cluster.nodes:
            if found := _DOUBTS.findall(node.metrics()):
                raise Difference(f"{node.name}: {found[:5]}")
            if found := [word for word in _DISAGREEMENTS if f'"{word}"' in node.ask("/status")]:
                raise Difference(f"{node.name} shows {found}")

    def whole(self) -> str:
        """Compares what was acknowledged at each node, after the flush at the lake, and with empty caches."""
        self._everywhere()
        self.cluster.bring_to_the_lake(by_order=True)
        for key, name in self.ledger.written.items():
            if key.startswith(PACKED):
                continue
            answer = self._at_lake("GET", key)
            if (answer.status, answer.body) != ((200, body(name)) if name else (404, answer.body)):
                raise Difference(f"the lake answers {answer.status} with {len(answer.body)} bytes to {key}, not {name}")
        self.cluster.stop()
        for node in self.cluster.nodes:
            node.restart_cold()
        # From the lake alone, packs among it: the registry has nothing.
        self._everywhere()
        return f"{len(self.ledger.written)} names"

    def _is_whole(self) -> bool:
        return all(knows(node, NODES) for node in self.cluster.nodes)

    def _everywhere(self) -> None:
        def compare(node: int) -> None:
            client = self.client()
            for key, name in self.ledger.written.items():
                client.check(node, key, name)

        with ThreadPoolExecutor(NODES) as pool:
            list(pool.map(compare, range(NODES)))

    def _survived(self, number: int) -> str:
        quiet = [(key, name) for key, name in self.ledger.fixed.items() if key.startswith(_QUIET)]
        caches = Counter(self.hand.check(number, key, name) for key, name in quiet)
        if set(caches) - {"HIT", "REVALIDATED"}:
            raise Difference(f"the cache of node {number + 1} did not survive: {dict(caches)}")
        return f"{caches.total()} of {len(quiet)} objects from the cache that it had"

    def _at_lake(self, method: str, key: str = "", data: bytes = b""):  # noqa: ANN202
        return send(self.lake.url, self.lake.account, method, BUCKET, key, body=data)


class LongUpload:
    """An upload that gets a part with each build, and is completed with the last one."""

    def __init__(self, story: Story, key: str) -> None:
        self._story, self._key = story, key
        begun = story.hand.ask(0, "POST", key, query={"uploads": ""})
        found = re.search(rb"<UploadId>([^<]+)<", begun.body)
        if found is None:
            raise Difference(f"no upload in {begun.body!r}")
        self._upload = Upload(found[1].decode(), [])

    def add(self, node: int) -> None:
        """Sends a part to a node."""
        number = len(self._upload.parts) + 1
        part = body(f"{self._key.replace('/', '-')}-{number}-{_PART_BYTES}")
        query = {"partNumber": str(number), "uploadId": self._upload.id}
        self._story.hand.ask(node, "PUT", self._key, data=part, query=query)
        self._upload = Upload(self._upload.id, [*self._upload.parts, part])

    def complete(self, node: int) -> None:
        """Completes the upload at a node, and reads the object at all."""
        story = self._story
        story.hand.ask(node, "POST", self._key, data=self._upload.document, query={"uploadId": self._upload.id})
        for each in range(NODES):
            answer = story.hand.ask(each, "GET", self._key)
            if answer.body != b"".join(self._upload.parts):
                raise Difference(f"node {each + 1} has other bytes of {self._key}")


def main() -> int:
    """Upgrades the cluster, and takes it back."""
    arguments = _parse()
    old, new = Build("old", arguments.old.resolve()), Build("new", arguments.new.resolve())
    print(f"{old}\n{new}", flush=True)
    report = Report()
    fixed = {
        f"{prefix}{number}": f"{prefix.strip('/')}-{number}-{size}"
        for prefix, count in ((FIXED, 20), (_QUIET, 10), (_COLD, 10))
        for number, size in zip(range(count), (900, 200_000, 3_000_000) * count, strict=False)
    }
    ledger = Ledger(fixed)
    with scratch("shoal-upgrade-", arguments.keep) as folder:
        try:
            with (
                versitygw.start(folder / "lake") as lake,
                Cluster(old.binary, folder, lake, [lake.account]) as cluster,
            ):
                story = Story(cluster, lake, ledger)
                if not _upgrade(report, story, old, new):
                    for node in cluster.nodes:
                        print(f"the end of the log of {node.name}:\n{node.log.read_text(errors='replace')[-3000:]}")
        except (LakeUnavailable, EtcdUnavailable) as reason:
            print(f"skipped: {reason}")
            return 0
    return report.finish()


def _upgrade(report: Report, story: Story, old: Build, new: Build) -> bool:
    with report.check("three nodes of the old build start"):
        story.begin()
    if report.has_failed:
        return False
    with Traffic(story.ledger, PREFIXES, story.client, NODES):
        for before, after in ((old, new), (new, old)):
            _replace_all(report, story, before, after)
            if report.has_failed:
                return False
    with report.check("no client got an error or other bytes"):
        print(f"   {_shown(story.ledger.counts)}", flush=True)
        if story.ledger.faults:
            raise Difference(story.ledger.shown())
    with report.check("everything acknowledged is at each node, and after the flush at the lake"):
        print(f"   {story.whole()}", flush=True)
    with report.check("no node logs an error"):
        if errors := story.cluster.errors():
            raise Difference("\n".join(errors[:5]))
    return not report.has_failed


def _replace_all(report: Report, story: Story, before: Build, after: Build) -> None:
    """Replaces each node in turn. One is drained first, as before a stop for long; the others only stop."""
    uploads: list[LongUpload] = []
    with report.check(f"an upload begins with the {before.word} build"):
        for prefix in (BACK, KEPT):
            uploads.append(LongUpload(story, f"{prefix}upload-{before.word}"))
            uploads[-1].add(0)
    is_refused = False
    for number in range(NODES):
        if report.has_failed or is_refused:
            break
        with report.check(f"the {after.word} build takes the place of node {number + 1}"):
            counts = Counter(story.ledger.counts)
            try:
                print(f"   {story.replace(number, after, is_drained=number == 1)}", flush=True)
            except NoWayError as reason:
                if after.word == "new":
                    raise
                is_refused = True
                raise Skip(f"there is no way back: {reason}") from reason
            for upload in uploads:
                upload.add(number)
            # A node of each build runs a task, as long as there are two.
            for node in (number, (number + 1) % NODES):
                story.order(node)
            _work_on(story, counts)
            story.quarrels()
            if story.ledger.faults:
                raise Difference(story.ledger.shown())
    if report.has_failed:
        return
    with report.check(f"uploads that the {before.word} build began end"):
        for number, upload in enumerate(uploads):
            upload.complete(number)


def _work_on(story: Story, before: Counter[str]) -> None:
    """Lets the clients work for a while, and until they have read and written back."""
    time.sleep(_MIXED_S)

    def done(kind: str) -> int:
        return sum(count for what, count in (story.ledger.counts - before).items() if what.startswith(kind))

    # A fault ends the wait, and the caller reports it.
    await_that(
        "clients read and write back",
        lambda: bool(story.ledger.faults) or (done("read") > 0 and done("write back") > 0),
    )
    print(f"   {_shown(story.ledger.counts - before)}", flush=True)


def _shown(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests/upgrade/run.sh", description=__doc__)
    parser.add_argument("--old", type=Path, required=True, help="the program that the nodes begin with")
    parser.add_argument("--new", type=Path, required=True, help="the program that replaces it")
    parser.add_argument("--keep", action="store_true", help="keep logs and data")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
