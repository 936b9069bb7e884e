"""The client at real nodes: `SHOAL dev` with three of them, and the examples of the pages for users."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import types
import unittest
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from unittest import mock

import boto3

import shoal
from shoal import lineage
from tests.plan_document import document
from tests.test_dags import WORKFLOW

_ROOT = Path(__file__).parents[3]
_TLS = _ROOT / "crates/shoal/tests/it/tls"
_SHOAL = os.environ.get("SHOAL", "")
_PART_BYTES = 300_000
_PARTS = 8
_PATIENCE_S = 120

# The names and the secret of the lake that `shoal dev` starts.
_IDENTITY = "shoaldev"
_S3 = {
    "AWS_ACCESS_KEY_ID": _IDENTITY,
    "AWS_SECRET_ACCESS_KEY": "shoaldev-secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


class Cluster:
    """Three nodes and their lake, in one process."""

    def __init__(self, addresses: Mapping[str, list[str]]) -> None:
        self.lake = addresses["lake"][0]
        nodes = [addresses[f"node-{number}"] for number in range(3)]
        self.s3 = [node[0] for node in nodes]
        self.admin = [node[-1] for node in nodes]

    def put(self, prefix: str) -> list[str]:
        """Puts objects into the lake, behind the back of the nodes. Returns their URIs."""
        lake = boto3.client("s3", endpoint_url=self.lake)
        keys = [f"{prefix}part-{number}.parquet" for number in range(_PARTS)]
        for number, key in enumerate(keys):
            lake.put_object(Bucket="demo", Key=key, Body=bytes([number]) * _PART_BYTES)
        return [f"s3://demo/{key}" for key in keys]


@contextlib.contextmanager
def cluster(variables: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """Starts nodes on free ports with variables of their configuration, and stops them at the end of the block."""
    command = [_SHOAL, "dev", *(part for name in ("s3", "admin", "peer", "lake") for part in (f"--{name}-port", "0"))]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **(variables or {})})
        try:
            yield Cluster(_addresses(process, log))
        finally:
            process.terminate()
            process.wait(_PATIENCE_S)


def _addresses(process: subprocess.Popen[bytes], log: io.TextIOBase | Any) -> dict[str, list[str]]:
    began = time.monotonic()
    while True:
        log.seek(0)
        lines = log.read().splitlines()
        if "ready" in lines:
            words = [line.split() for line in lines if line.strip()]
            return {line[0]: [word for word in line if word.startswith("http")] for line in words}
        if process.poll() is not None or time.monotonic() - began > _PATIENCE_S:
            raise RuntimeError("shoal dev did not start:\n" + "\n".join(lines))
        time.sleep(0.05)


def _eventually(holds: Callable[[], bool]) -> None:
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > _PATIENCE_S:
            raise RuntimeError("it does not come true")
        time.sleep(0.05)


@unittest.skipUnless(_SHOAL, "SHOAL names no binary")
class Nodes(unittest.TestCase):
    """Stories at three nodes that take orders from loopback without a token."""

    nodes: Cluster

    @classmethod
    def setUpClass(cls) -> None:
        """Starts the nodes that all stories share."""
        stack = contextlib.ExitStack()
        cls.addClassCleanup(stack.close)
        stack.enter_context(mock.patch.dict(os.environ, _S3))
        cls.nodes = stack.enter_context(cluster())

    def test_a_prefetched_prefix_is_cached_and_can_be_evicted(self) -> None:
        """The progress ends with all bytes; a count finds them on the nodes."""
        self.nodes.put("story/")
        client = shoal.Client(self.nodes.admin[0])
        states = list(client.wait(client.prefetch("s3://demo/story/", to="node-1"), every=0.05))
        last = states[-1]
        self.assertEqual((last.state, last.fraction, last.objects.done), ("done", 1.0, _PARTS))
        self.assertEqual(last.bytes.from_lake + last.bytes.from_peers, _PARTS * _PART_BYTES)
        # Another node answers for the same task, once it has its record.
        other = shoal.Client(self.nodes.admin[2])
        _eventually(lambda: any(task.id == last.id for task in other.tasks()))
        self.assertEqual(other.result(last).bytes, last.bytes)
        counted = other.result(other.cached("s3://demo/story/"))
        self.assertEqual(counted.nodes["node-1"].bytes, _PARTS * _PART_BYTES)
        other.result(other.evict("s3://demo/story/"))
        counted = client.result(client.cached("s3://demo/story/"))
        self.assertEqual(counted.bytes.cached, 0)

    def test_a_list_names_its_errors_by_object(self) -> None:
        """What the lake does not have is in the exception; the rest is brought."""
        uris = self.nodes.put("list/")
        client = shoal.Client(self.nodes.admin[1])
        with self.assertRaises(shoal.TaskFailed) as caught:
            client.result(client.prefetch(iter([*uris[:2], "s3://demo/list/lost"]), identity=_IDENTITY))
        task = caught.exception.task
        self.assertEqual((task.objects.done, task.objects.failed), (2, 1))
        self.assertEqual(task.errors[0].object, "s3://demo/list/lost")
        self.assertEqual(task.manifest and task.manifest.objects, 3)

    def test_a_pin_is_explained_and_ends_with_its_task(self) -> None:
        """Its time is the one that was given."""
        self.nodes.put("pinned/")
        client = shoal.Client(self.nodes.admin[0])
        until = datetime.now(timezone.utc).replace(microsecond=0) + timedelta(days=3)
        pin = client.result(client.pin("s3://demo/pinned/part-0.parquet", until, to="node-0"))
        explained = client.explain("s3://demo/pinned/part-0.parquet")
        self.assertEqual(explained.pins, (shoal.Pin(pin.id, until, None),))
        self.assertTrue(all(block.pinned for block in explained.blocks))
        self.assertGreaterEqual(client.status().store.pins.objects, 1)
        self.assertEqual(client.cancel(pin).state, "cancelled")
        with self.assertRaises(shoal.Conflict):
            client.cancel(pin)

    def test_orders_that_are_wrong_are_refused_with_a_hint(self) -> None:
        """A place that is none, a pattern that is none, an identity that is unknown, a pin for too long."""
        client = shoal.Client(self.nodes.admin[0])
        orders: tuple[Callable[[], shoal.Task], ...] = (
            lambda: client.prefetch("s3://demo/", to="nowhere"),
            lambda: client.prefetch("s3://demo/["),
            lambda: client.cached("s3://demo/", identity="nobody"),
            lambda: client.pin("s3://demo/", timedelta(days=500)),
            lambda: client.prefetch([]),
        )
        for order in orders:
            with self.assertRaises(shoal.InvalidOrder) as caught:
                order()
            self.assertEqual((caught.exception.status, caught.exception.hint is None), (400, False), caught.exception)
        with self.assertRaises(shoal.NotFound):
            client.task("01ARZ3NDEKTSV4RRFFQ69G5FAV")

    def test_tasks_are_listed_and_a_running_one_is_cancelled(self) -> None:
        """A slow one, which would take minutes."""
        self.nodes.put("slow/")
        client = shoal.Client(self.nodes.admin[0])
        slow = client.prefetch("s3://demo/slow/", rate=10_000, deadline=timedelta(days=1))
        for now in client.wait(slow, every=0.05):
            if now.state == "running":
                break
        self.assertIn(slow.id, [task.id for task in client.tasks("running")])
        client.cancel(slow)
        with self.assertRaisesRegex(shoal.TaskFailed, "was cancelled"):
            client.result(slow)
        newest = next(client.tasks(limit=1))
        self.assertGreaterEqual(newest.id, slow.id)
        self.assertEqual({member.name for member in client.members().members}, {"node-0", "node-1", "node-2"})

    def test_a_plan_is_carried_out_and_its_deadline_met(self) -> None:
        """It is handed over as a file, and another node answers the same."""
        uris = self.nodes.put("night/")
        planned = document(dict.fromkeys(uris, _PART_BYTES))
        client, other = shoal.Client(self.nodes.admin[0]), shoal.Client(self.nodes.admin[1])
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "plan"
            file.write_text(json.dumps(planned))
            plan = client.start_plan(file, identity=_IDENTITY)
        taken = plan.document
        assert taken is not None
        self.assertEqual((taken.jobs, taken.planned_jobs, taken.transfers), (1, 1, _PARTS))
        self.assertEqual(taken.bytes, len(json.dumps(planned)))
        self.assertEqual(taken.starts.timestamp(), planned["epoch_ms"] / 1000)
        for now in client.wait(plan, every=0.05):
            if now.bytes.done == _PARTS * _PART_BYTES:
                break
        self.assertEqual(now.bytes.total, _PARTS * _PART_BYTES)
        self.assertTrue(any(block.pinned for node in self._explained(uris[0]) for block in node.blocks))
        done = other.result(plan)
        self.assertEqual((done.id, done.state), (plan.id, "done"))
        # Nobody has read what came in time.
        jobs = done.plan and done.plan.jobs
        self.assertEqual(jobs and (jobs.met, jobs.missed, jobs.unread), (0, 0, 1))
        counted = client.result(client.cached("s3://demo/night/"))
        self.assertEqual(counted.bytes.cached, _PARTS * _PART_BYTES)
        with self.assertRaises(shoal.Conflict):
            client.stop_plan()

    def _explained(self, uri: str) -> list[shoal.Explanation]:
        return [shoal.Client(admin).explain(uri) for admin in self.nodes.admin]

    def test_a_plan_at_risk_names_its_job_and_what_is_wrong_until_it_is_stopped(self) -> None:
        """The lake does not have the object."""
        client = shoal.Client(self.nodes.admin[1])
        lost = "s3://demo/night/lost"
        first = client.start_plan(document({lost: _PART_BYTES}, submit_s=600, deadline_s=660))
        plan = client.start_plan(document({lost: _PART_BYTES}, submit_s=1, deadline_s=600))
        self.assertEqual(plan.document and plan.document.replaces, first.id)
        with self.assertRaisesRegex(shoal.TaskFailed, "was cancelled"):
            client.result(first)
        progress = plan.plan
        for now in client.wait(plan, every=0.05, timeout=_PATIENCE_S):
            progress = now.plan
            if progress and progress.jobs.at_risk and progress.issues:
                break
        assert progress is not None
        (troubled,) = progress.troubled
        self.assertEqual((troubled.job, troubled.status), ("etl@night", "at-risk"))
        self.assertEqual(troubled.deadline - troubled.submit, timedelta(seconds=599))
        self.assertEqual(progress.issues[0].file, lost)
        self.assertEqual(client.stop_plan().state, "cancelled")
        with self.assertRaisesRegex(shoal.TaskFailed, "was cancelled"):
            client.result(plan)

    def test_plans_that_are_none_are_refused_with_a_hint(self) -> None:
        """No JSON, another JSON, a plan that is over, and an identity that is unknown."""
        client = shoal.Client(self.nodes.admin[0])
        over = {**document({"s3://demo/x": 1}), "epoch_ms": 0}
        orders: tuple[Callable[[], shoal.Task], ...] = (
            lambda: client.start_plan(b"etl"),
            lambda: client.start_plan({"version": 1}),
            lambda: client.start_plan(over),
            lambda: client.start_plan(document({"s3://demo/x": 1}), identity="nobody"),
        )
        for order in orders:
            with self.assertRaises(shoal.InvalidOrder) as caught:
                order()
            self.assertEqual((caught.exception.status, caught.exception.hint is None), (400, False), caught.exception)

    def test_what_a_program_reads_is_brought_and_kept_while_it_runs(self) -> None:
        """Another node answers the same, and which run it was."""
        self.nodes.put("hinted/")
        client, other = shoal.Client(self.nodes.admin[0]), shoal.Client(self.nodes.admin[1])

        def use() -> shoal.HintUse | None:
            return next((use for use in other.hints() if use.reader.name == "nightly/train"), None)

        def is_kept(size: int) -> bool:
            found = use()
            return found is not None and found.keeps and found.task.bytes.done == size

        with client.reading("nightly/train", namespace="ml", inputs={"s3://demo/hinted/": 5}) as run:
            _eventually(lambda: is_kept(_PARTS * _PART_BYTES))
            boto3.client("s3", endpoint_url=self.nodes.s3[2]).get_object(Bucket="demo", Key="hinted/part-0.parquet")
        _eventually(lambda: not is_kept(_PARTS * _PART_BYTES))
        found = use()
        assert found is not None
        self.assertEqual((found.reader, found.stage), (shoal.JobName("ml", "nightly/train"), 0))
        self.assertEqual((found.inputs, found.hint.run), (("s3://demo/hinted",), run))
        self.assertEqual(client.task(found.id).kind, "hint")
        runs = [one for one in other.runs() if one["id"] == run]
        self.assertEqual([(one["name"], one["inputs"][0]["bytes"]) for one in runs], [("ml/nightly/train", 5)])

    def test_events_that_nodes_do_not_take_are_told_one_by_one(self) -> None:
        """No object of an event, and no id of a run."""
        client = shoal.Client(self.nodes.admin[0])
        begun = lineage.start("j", namespace="n", inputs=["s3://demo/hinted/"])
        result = client.hint([{}, begun, {**begun, "run": {"runId": "x"}}, lineage.end(begun, "FAIL")])
        self.assertEqual((result.received, result.successful), (4, 2))
        self.assertEqual([(event.index, event.retriable) for event in result.failed], [(0, False), (2, False)])
        with self.assertRaises(shoal.InvalidOrder), client.running({**begun, "run": {"runId": "x"}}):
            self.fail("the block runs")

    def test_a_flush_brings_what_is_written_back_to_the_lake(self) -> None:
        """Only what is below the prefix."""
        for key in ("back/now/a", "back/now/b", "back/later"):
            boto3.client("s3", endpoint_url=self.nodes.s3[0]).put_object(Bucket="demo", Key=key, Body=b"written")
        client = shoal.Client(self.nodes.admin[1])
        flushed = client.result(client.flush("s3://demo/back/now/"))
        self.assertEqual((flushed.flushed, flushed.left, flushed.below), (2, 0, "s3://demo/back/now/"))
        lake = boto3.client("s3", endpoint_url=self.nodes.lake)
        listed = lake.list_objects_v2(Bucket="demo", Prefix="back/")
        self.assertEqual([found["Key"] for found in listed["Contents"]], ["back/now/a", "back/now/b"])
        self.assertEqual(client.result(client.flush()).failed, 0)
        self.assertEqual(lake.get_object(Bucket="demo", Key="back/later")["Body"].read(), b"written")
        with self.assertRaises(shoal.InvalidOrder):
            client.flush("back/")

    def test_a_drained_node_is_not_ready_and_has_given_its_blocks_away(self) -> None:
        """Until the order is taken back, which ends a wait."""
        self.nodes.put("given/")
        client = shoal.Client(self.nodes.admin[2])
        client.result(client.prefetch("s3://demo/given/", to="node-2"))
        self.addCleanup(client.undrain)
        drained = client.result(client.drain())
        self.assertEqual((drained.state, drained.blocks_left, drained.objects_dirty), ("drained", 0, 0))
        self.assertGreater(drained.blocks_given, 0)
        self.assertEqual(client.status().drain, drained)
        found = client.readiness()
        self.assertFalse(found.ready)
        self.assertIn("draining", [condition.condition for condition in found.conditions])
        self.assertEqual(client.undrain().state, "serving")
        self.assertTrue(client.readiness().ready)
        with self.assertRaises(shoal.DrainEnded):
            client.result(drained)

    def test_the_examples_of_the_pages_run(self) -> None:
        """Those of the README and of the how-to pages, in their order, and what they print in the end."""
        corpus = self.nodes.put("corpus/")
        self.nodes.put("train/")
        boto3.client("s3", endpoint_url=self.nodes.s3[0]).put_object(Bucket="demo", Key="back/x", Body=b"written")
        objects = f"{_PARTS} of {_PARTS} objects"
        pages = {
            "clients/python/README.md": (
                objects,
                "jobs: 1 unread",
                "2 of 2 events were taken",
                "ml/nightly/train reads s3://demo/corpus",
                "ml/nightly/export ",
                "run the workflow",
                "back/, objects: 1 flushed\n",
                "drained, ",
                "\nTrue\n",
            ),
            "docs/how-to/warm.md": (objects,),
            "docs/how-to/plan.md": ("0 of 1 jobs missed their deadlines",),
        }
        for page, texts in pages.items():
            printed = self._run_examples(page, dict.fromkeys(corpus, _PART_BYTES))
            for text in texts:
                self.assertIn(text, printed, page)

    def _run_examples(self, page: str, planned: dict[str, int]) -> str:
        text = (_ROOT / page).read_text(encoding="utf-8")
        examples = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        variables: dict[str, Any] = {"__name__": "example"}
        environment = mock.patch.dict(os.environ, {"SHOAL_ADMIN_URL": self.nodes.admin[0]})
        output = contextlib.redirect_stdout(io.StringIO())
        with tempfile.TemporaryDirectory() as folder, environment, _torch(), output as printed:
            plan = Path(folder) / "plan"
            workflow = Path(folder) / "workflow.json"
            workflow.write_text(json.dumps(WORKFLOW))
            replaced = {
                "http://127.0.0.1:9100": self.nodes.admin[0],
                "http://127.0.0.1:9101": self.nodes.admin[1],
                "http://127.0.0.1:9000": self.nodes.s3[0],
                '"plan"': repr(str(plan)),
                '"workflow.json"': repr(str(workflow)),
                "every=60": "every=0.1",
            }
            for example in examples:
                # The plan begins when it is handed over.
                plan.write_text(json.dumps(document(planned)))
                here = example
                for written, replacement in replaced.items():
                    here = here.replace(written, replacement)
                exec(compile(here, page, "exec"), variables)
        return printed.getvalue()


@contextlib.contextmanager
def _torch() -> Iterator[None]:
    """Provides what the how-to page uses of PyTorch, which is too large to install for an example."""

    class DataLoader:
        def __init__(self, dataset: Any, batch_size: None, num_workers: int) -> None:
            self._dataset = dataset

        def __iter__(self) -> Iterator[Any]:
            return iter(self._dataset)

    data: Any = types.ModuleType("torch.utils.data")
    data.IterableDataset, data.DataLoader, data.get_worker_info = object, DataLoader, lambda: None
    names = {"torch": types.ModuleType("torch"), "torch.utils": types.ModuleType("torch.utils"), data.__name__: data}
    with mock.patch.dict(sys.modules, names):
        yield


@unittest.skipUnless(_SHOAL, "SHOAL names no binary")
class Access(unittest.TestCase):
    """Nodes that ask for a proof."""

    def test_an_order_needs_the_token(self) -> None:
        """None, a wrong one, and the right one."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "tokens"
            file.write_text("the-token-of-these-tests\n")
            with cluster({"SHOAL_ADMIN_TOKEN_FILE": str(file)}) as nodes:
                for token in (None, "another-token-of-these-tests"):
                    with self.assertRaises(shoal.Unauthorized):
                        shoal.Client(nodes.admin[0], token=token).cached("s3://demo/")
                client = shoal.Client(nodes.admin[0], token="the-token-of-these-tests")
                self.assertEqual(client.result(client.cached("s3://demo/")).state, "done")

    def test_an_order_needs_a_certificate(self) -> None:
        """The port is encrypted, and knows a CA of clients."""
        files = {"TLS_CERT": "certificate.pem", "TLS_KEY": "private-key.pem", "CLIENT_CA": "client-ca.pem"}
        variables = {f"SHOAL_ADMIN_{name}": str(_TLS / file) for name, file in files.items()}
        with cluster(variables) as nodes:
            url = nodes.admin[0].replace("http://", "https://")
            ca = _TLS / "certificate.pem"
            with self.assertRaises(shoal.Unauthorized):
                shoal.Client(url, ca=ca).cached("s3://demo/")
            client = shoal.Client(url, ca=ca, cert=_TLS / "client.pem", key=_TLS / "client.key")
            self.assertEqual(client.result(client.cached("s3://demo/")).state, "done")
            with self.assertRaises(shoal.ShoalError):
                shoal.Client(url.replace("https://", "http://")).members()
