"""Plans, flushes and drains: what the client sends, and what it makes of answers."""

from __future__ import annotations

import json
import tempfile
import unittest
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from unittest import mock

import shoal
from tests.port import TASK_ID, Reply, Request, always, flush, handoff, open_port, plan, status


def told(*answers: object) -> Callable[[Request], Reply]:
    """Returns what gives one answer after the other, and the last one again and again."""

    def replies() -> Iterator[Reply]:
        for answer in answers:
            yield answer if isinstance(answer, Reply) else Reply.of_json(answer)
        while True:
            yield Reply.of_json(answers[-1])

    story = replies()
    return lambda _: next(story)


class Plans(unittest.TestCase):
    """The plan of the cluster."""

    def test_a_document_is_handed_over_from_a_file_bytes_or_a_mapping(self) -> None:
        """Files and bytes go as they are, whatever is in them."""
        content = b'{"version": 1,\n "jobs": []}\n'
        with tempfile.TemporaryDirectory() as folder, open_port(told(plan())) as port:
            file = Path(folder) / "plan"
            file.write_bytes(content)
            client = shoal.Client(port.url)
            for document in (str(file), file, content):
                self.assertEqual(client.start_plan(document, identity="a&b").id, TASK_ID)
            client.start_plan(json.loads(content))
        for request in port.requests:
            sent = (request.method, request.path, request.headers["content-type"])
            self.assertEqual(sent, ("POST", "/plan", "application/json"))
        self.assertEqual([request.body for request in port.requests[:3]], [content] * 3)
        self.assertEqual(port.requests[0].query, {"identity": "a&b"})
        self.assertEqual((json.loads(port.requests[3].body), port.requests[3].query), (json.loads(content), {}))

    def test_what_cannot_be_a_plan_is_refused_before_anything_is_sent(self) -> None:
        """A file that is not there, a text that is no path, a number that JSON lacks, and too many bytes."""
        with tempfile.TemporaryDirectory() as folder, open_port(told(plan())) as port:
            client = shoal.Client(port.url)
            file = Path(folder) / "plan"
            with self.assertRaises(FileNotFoundError):
                client.start_plan(file)
            with self.assertRaisesRegex(ValueError, "give it as bytes"):
                client.start_plan('\n{"version": 1}')
            with self.assertRaises(ValueError):
                client.start_plan({"epoch_ms": float("nan")})
            file.write_bytes(b" " * 12)
            with mock.patch("shoal.client._PLAN_BYTES_MAX", 10):
                for document in (file, b" " * 11, {"version": 1}):
                    with self.assertRaisesRegex(ValueError, "at most 10 bytes"):
                        client.start_plan(document)
                client.start_plan(b" " * 10)
        self.assertEqual(len(port.requests), 1)

    def test_a_plan_has_its_jobs_transfers_and_issues(self) -> None:
        """Its text is one line."""
        progress = {
            "troubled": [
                {
                    "job": "etl@x",
                    "status": "at-risk",
                    "submit": "2026-11-27T18:10:00Z",
                    "deadline": "2026-11-27T18:20:00Z",
                }
            ],
            "transfers": [
                {"file": "s3://b/k", "bytes": 9, "planned_bytes": 5, "done_bytes": 4, "bytes_per_second": 3},
            ],
            "issues": [{"at": "2026-11-27T18:01:00Z", "file": "s3://b/l", "error": "the lake does not have it"}],
            "arrivals": [{"hint": "01K", "job": "etl/a@x", "at": "2026-11-27T18:03:00Z", "why": "the link is short"}],
            "replans": 1,
            "replanned": {"at": "2026-11-27T18:02:00Z", "why": "it is late", "by": "node", "detail": "no planner"},
        }
        with open_port(told(plan(progress=progress))) as port:
            found = shoal.Client(port.url).plan()

        def at(minute: int) -> datetime:
            return datetime(2026, 11, 27, 18, minute, tzinfo=timezone.utc)

        assert found.plan is not None and found.document is not None
        self.assertEqual(found.plan.troubled, (shoal.TroubledJob("etl@x", "at-risk", at(10), at(20)),))
        self.assertEqual(found.plan.transfers, (shoal.Transfer("s3://b/k", 9, 5, 4, 3),))
        self.assertEqual(found.plan.issues, (shoal.PlanIssue(at(1), "s3://b/l", "the lake does not have it"),))
        self.assertEqual(found.plan.arrivals, (shoal.Arrival("01K", "etl/a@x", at(3), "the link is short"),))
        self.assertEqual(found.plan.replanned, shoal.Replanned(at(2), "it is late", "node", "no planner"))
        self.assertEqual((found.plan.planned_bytes, found.plan.jobs.at_risk), (2 << 20, 1))
        self.assertEqual((found.document.starts, found.eta), (at(0), None))
        self.assertEqual(str(found), f"plan {TASK_ID}: 25%, 1.0 MiB of 4.0 MiB, jobs: 1 at risk, 2 waiting")

    def test_a_plan_is_followed_to_its_end_as_any_task(self) -> None:
        """Missed deadlines are no error: the jobs are counted."""
        queued = plan(state="queued")
        done = plan(
            state="done",
            jobs={"waiting": 0, "running": 0, "at_risk": 0, "met": 2, "missed": 1, "unread": 0, "unplanned": 0},
        )
        with open_port(told(queued, queued, Reply(None), plan(), done)) as port:
            client = shoal.Client(port.url)
            started = client.plan()
            states = [now.state for now in client.wait(started, every=0.01)]
            self.assertEqual(states, ["queued", "running", "done"])
            progress = client.result(started).plan
            self.assertEqual(progress and progress.jobs.missed, 1)
        self.assertEqual(port.requests[-1].path, f"/tasks/{TASK_ID}")

    def test_a_plan_that_fails_or_is_cancelled_is_an_error_with_the_task(self) -> None:
        """Its reason is in the message."""
        for state, text in (("failed", "failed: no room"), ("cancelled", "was cancelled: no room")):
            with self.subTest(state), open_port(told(plan(), plan(state=state, detail="no room"))) as port:
                client = shoal.Client(port.url)
                with self.assertRaisesRegex(shoal.TaskFailed, text) as caught:
                    client.result(client.plan())
                self.assertEqual(caught.exception.task.state, state)

    def test_plans_are_started_and_stopped_once(self) -> None:
        """A node that breaks off may have done so, and a later plan must not be stopped in place of this one."""
        with open_port(always(Reply(None))) as port:
            client = shoal.Client(port.url)
            for order in (client.stop_plan, lambda: client.start_plan(b"{}")):
                with self.assertRaises(shoal.Unreachable):
                    order()
        self.assertEqual([request.method for request in port.requests], ["DELETE", "POST"])


class Flushes(unittest.TestCase):
    """Dirty objects on their way to the lake."""

    def test_a_flush_is_followed_to_its_end(self) -> None:
        """It is the prefix that is sent; the text says how far it is."""
        running = flush(running=True, left=2, flushed=0, below="s3://b/p/")

        def answer(request: Request) -> Reply:
            if request.method == "POST":
                return Reply.of_json(running)
            shown = running if len(port.requests) < 4 else flush(below="s3://b/p/")
            return Reply.of_json(status(write_back={"objects": 0, "bytes": 0, "flush": shown}))

        with open_port(answer) as port:
            client = shoal.Client(port.url)
            states = [str(now) for now in client.wait(client.flush("s3://b/p/"), every=0.01)]
        self.assertEqual(port.requests[0].query, {"below": "s3://b/p/"})
        first = "flush of s3://b/p/, objects: 0 flushed, 2 left"
        self.assertEqual(states, [first, first, "flush of s3://b/p/, objects: 2 flushed"])
        failed = shoal.Flush(order=1, running=False, below=None, left=0, flushed=2, failed=1, error="no registry")
        self.assertEqual(str(failed), "flush of all, objects: 2 flushed, 1 failed, no registry")

    def test_what_is_not_flushed_is_an_error(self) -> None:
        """Objects that stay dirty, dirty objects that cannot be listed, and a node that counts from the start."""
        for shown, text in (
            (flush(failed=1), "1 of 3 objects could not be flushed"),
            (flush(flushed=0, error="no registry"), "no object was flushed: no registry"),
            (flush(order=4), "how the flush ended is not known"),
            (flush(order=0, flushed=0), "how the flush ended is not known"),
        ):
            write_back = {"objects": 0, "bytes": 0, "flush": shown}
            answers = told(flush(running=True), status(write_back=write_back))
            with self.subTest(text), open_port(answers) as port:
                client = shoal.Client(port.url)
                with self.assertRaisesRegex(shoal.FlushFailed, text) as caught:
                    client.result(client.flush())
                self.assertIsNotNone(caught.exception.hint)
                self.assertEqual(port.requests[0].query, {})


class Drains(unittest.TestCase):
    """A node before a stop."""

    def test_a_drain_is_followed_to_its_end(self) -> None:
        """Blocks that no node took are no error."""
        draining = handoff(blocks_left=3, objects_dirty=1)
        drained = handoff(state="drained", blocks_given=2, bytes_given=3 << 20, blocks_kept=1)
        with open_port(told(draining, status(drain=draining), status(drain=drained))) as port:
            client = shoal.Client(port.url)
            states = [str(now) for now in client.wait(client.drain(), every=0.01)]
        self.assertEqual(
            states,
            [
                "draining, blocks: 0 given (0 B), 3 left, dirty objects: 1",
                "drained, blocks: 2 given (3.0 MiB), 1 kept",
            ],
        )
        self.assertEqual([request.path for request in port.requests], ["/drain", "/status", "/status"])

    def test_a_drain_that_is_taken_back_is_an_error(self) -> None:
        """The node serves again; or it is another, which caches alone."""
        with open_port(told(handoff(), status(drain=handoff(state="serving")))) as port:
            client = shoal.Client(port.url)
            with self.assertRaisesRegex(shoal.DrainEnded, "it serves again\nhint: ") as caught:
                client.result(client.drain())
            self.assertEqual(caught.exception.handoff.state, "serving")
        with open_port(told(handoff(), status(drain=None))) as port:
            client = shoal.Client(port.url)
            with self.assertRaisesRegex(shoal.UnexpectedAnswer, "caches alone"):
                client.result(client.drain())

    def test_a_wait_that_ends_early_says_how_to_end_what_goes_on(self) -> None:
        """Each in its own words."""
        for answer, order, text in (
            (plan(), shoal.Client.plan, f"the task {TASK_ID} is not over .*or cancel it"),
            (flush(running=True), shoal.Client.flush, "the flush is not over .*or leave it"),
            (handoff(), shoal.Client.drain, "the drain is not over .*or take it back by undrain"),
        ):
            write_back = {"objects": 0, "bytes": 0, "flush": flush(running=True)}
            now = plan() if "document" in answer else status(write_back=write_back)
            with self.subTest(text), open_port(told(answer, now)) as port:
                client = shoal.Client(port.url)
                given: Any = order(client)
                with self.assertRaisesRegex(shoal.TimedOut, f"(?s){text}"):
                    client.result(given, timeout=0.02)

    def test_a_node_that_is_not_ready_says_why_at_once(self) -> None:
        """Its status of HTTP is that of a proxy without a node behind it, whose answer is no readiness."""
        reasons = {"ready": False, "missing": ["lake"], "conditions": []}
        with open_port(told(Reply.of_json(reasons, status=503))) as port:
            found = shoal.Client(port.url).readiness()
            self.assertEqual(found, shoal.Readiness(ready=False, missing=("lake",), conditions=()))
            self.assertEqual(len(port.requests), 1)
        with open_port(always(Reply(503, b"<html>"))) as port, self.assertRaises(shoal.ShoalError):
            shoal.Client(port.url).readiness()
