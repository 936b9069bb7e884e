"""Hints: the events that the client sends, and what it makes of answers."""

from __future__ import annotations

import json
import socket
import time
import unittest
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any
from unittest import mock

import shoal
from shoal import lineage
from tests.port import TASK_ID, Reply, Request, always, open_port, task

_TAKEN = Reply(201)


def batch(refused: Callable[[Any], str | None] = lambda _: None) -> Callable[[Request], Reply]:
    """Returns what takes batches as a node does, and refuses events for a reason, or for none."""

    def answer(request: Request) -> Reply:
        events = json.loads(request.body)
        reasons = [(index, refused(event)) for index, event in enumerate(events)]
        failed = [{"index": index, "reason": why, "retriable": why == "later"} for index, why in reasons if why]
        retriable = sum(why == "later" for _, why in reasons)
        summary = {
            "received": len(events),
            "successful": len(events) - len(failed),
            "failed": len(failed),
            "retriable": retriable,
            "non_retriable": len(failed) - retriable,
        }
        return Reply.of_json({"status": "success", "summary": summary, "failed_events": failed})

    return answer


def hint_use(**fields: Any) -> dict[str, Any]:
    """Returns a hint as nodes send it."""
    facts = {
        "run": "019ad3f0-0000-7000-8000-0000000000ab",
        "reader": {"namespace": "ml", "name": "train"},
        "stage": 1,
        "inputs": ["s3://b/x", "s3://b/y"],
        "awaited": ["s3://b/tmp"],
        "priority": 7,
    }
    counts = {"brought_bytes": 4 << 20, "used_bytes": 3 << 20, "evicted_bytes": 0, "wasted_bytes": 1 << 20}
    hinted = task(kind="hint", uri=None, state="done", hint=facts)
    times = {"brought": "2026-11-24T03:00:05Z", "first_used": "2026-11-24T03:00:06.5Z"}
    return {"task": hinted, "keeps": False, **counts, "early_ms": 1500, **times, **fields}


class Batches(unittest.TestCase):
    """Events that exist."""

    def test_events_are_sent_in_parts_and_failures_are_counted_through(self) -> None:
        """An iterator is enough. The place is that among all events."""
        reasons = {3: "no rule", 500: "later", 1204: "no rule"}
        with open_port(batch(lambda event: reasons.get(event["number"]))) as port:
            result = shoal.Client(port.url).hint({"number": number} for number in range(1205))
        sizes = [len(json.loads(request.body)) for request in port.requests]
        self.assertEqual(sizes, [500, 500, 205])
        sent = {(request.method, request.path, request.headers["content-type"]) for request in port.requests}
        self.assertEqual(sent, {("POST", "/api/v1/lineage/batch", "application/json")})
        self.assertEqual((result.received, result.successful), (1205, 1202))
        self.assertEqual(
            result.failed,
            (
                shoal.FailedEvent(3, "no rule", False),
                shoal.FailedEvent(500, "later", True),
                shoal.FailedEvent(1204, "no rule", False),
            ),
        )

    def test_parts_are_no_longer_than_nodes_take(self) -> None:
        """With the commas and the brackets."""
        events = [{"e": "x" * 12}] * 9
        longest = len(json.dumps(events[:2], separators=(",", ": ")))
        with mock.patch("shoal.client._BATCH_BYTES_MAX", longest), open_port(batch()) as port:
            self.assertEqual(shoal.Client(port.url).hint(events).received, 9)
        self.assertEqual([len(request.body) for request in port.requests][:4], [longest] * 4)
        self.assertEqual(len(port.requests), 5)

    def test_one_event_or_none_is_enough(self) -> None:
        """For none, nothing is sent."""
        with open_port(batch()) as port:
            client = shoal.Client(port.url)
            self.assertEqual(client.hint({"a": 1}), shoal.HintResult(1, 1, ()))
            self.assertEqual(client.hint([]), shoal.HintResult(0, 0, ()))
        self.assertEqual([request.body for request in port.requests], [b'[{"a": 1}]'])

    def test_what_is_no_event_is_refused_before_anything_is_sent(self) -> None:
        """A text, what is no object, what JSON lacks, and what no node takes."""
        wrong: tuple[tuple[Any, type[Exception], str], ...] = (
            ('{"a": 1}', TypeError, "give what json.loads returns"),
            ([{}, [1]], TypeError, "item 1 of the events is list"),
            ([{}, {"a": b"x"}], TypeError, "item 1 of the events is no JSON"),
            ({"a": float("nan")}, ValueError, "item 0 of the events is no JSON"),
            ([{}, {"a": "x" * 99}], ValueError, "item 1 of the events has 108 bytes"),
        )
        with mock.patch("shoal.client._BATCH_BYTES_MAX", 100), open_port(batch()) as port:
            for events, kind, text in wrong:
                with self.subTest(text), self.assertRaisesRegex(kind, text):
                    shoal.Client(port.url).hint(events)
        self.assertEqual(port.requests, [])

    def test_a_refusal_of_all_events_is_an_error(self) -> None:
        """Such as that of a wrong token."""
        with open_port(always(Reply(401, b"who?"))) as port, self.assertRaises(shoal.Unauthorized):
            shoal.Client(port.url).hint({})


class Events(unittest.TestCase):
    """Events that are made here."""

    def test_a_start_has_what_nodes_read(self) -> None:
        """The names of the places, the sizes, and the facet."""
        event = lineage.start(
            "nightly/train",
            namespace="etl",
            inputs={"s3://b/t/": 7, "s3a://c/u": None},
            outputs=["s3://b/o"],
            stages=[
                {"name": "join", "reads": ["s3://b/t/"], "writes": ["s3n://b/o/"], "life": "run"},
                {"priority": 100, "bytes": 5, "life": None},
            ],
            deadline=datetime(2026, 11, 27, 19, tzinfo=timezone(timedelta(hours=1))),
            life="run",
            priority=0,
        )
        self.assertEqual(event["eventType"], "START")
        self.assertEqual(event["schemaURL"], "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent")
        self.assertRegex(event["eventTime"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
        job, (first, second) = event["job"], event["inputs"]
        self.assertEqual((job["namespace"], job["name"]), ("etl", "nightly/train"))
        facet = job["facets"]["shoal"]
        self.assertTrue(facet.pop("_producer") and facet.pop("_schemaURL").startswith("https://openlineage.io/"))
        self.assertEqual(
            facet,
            {
                "deadline": "2026-11-27T18:00:00.000Z",
                "priority": 0,
                "stages": [
                    {"name": "join", "reads": ["s3://b/t"], "writes": ["s3://b/o"], "life": "run"},
                    {"name": "1", "reads": [], "writes": [], "priority": 100, "bytes": 5},
                ],
            },
        )
        self.assertEqual((first["namespace"], first["name"]), ("s3://b", "t"))
        self.assertEqual(first["inputFacets"]["inputStatistics"]["size"], 7)
        self.assertEqual(first["facets"]["shoal"]["bytes"], 7)
        self.assertEqual(second, {"namespace": "s3://c", "name": "u"})
        (output,) = event["outputs"]
        self.assertEqual(output["facets"]["shoal"]["life"], "run")
        self.assertEqual((output["namespace"], output["name"]), ("s3://b", "o"))

    def test_stages_say_what_the_run_reads_and_writes(self) -> None:
        """What passes between them is neither."""
        stages = [{"reads": ["s3://b/x", "s3://b/y"], "writes": ["s3://b/z"]}, {"reads": ["s3://b/z", "s3://b/x"]}]
        event = lineage.start("j", namespace="n", stages=[*stages, {"writes": ["s3://b/o"]}])
        self.assertEqual([one["name"] for one in event["inputs"]], ["x", "y"])
        self.assertEqual([one["name"] for one in event["outputs"]], ["o"])
        event = lineage.start("j", namespace="n", stages=stages, inputs=["s3://b/all"], outputs=["s3://b/p"])
        self.assertEqual([one["name"] for one in (*event["inputs"], *event["outputs"])], ["all", "p"])

    def test_an_end_is_of_the_same_run_and_may_name_more_outputs(self) -> None:
        """Nodes put a run together that they know by its end only."""
        begun = lineage.start("j", namespace="n", inputs=["s3://b/t"], deadline=timedelta(hours=1))
        end = lineage.end(begun, outputs=["s3://b/o"])
        self.assertEqual((end["eventType"], end["run"], end["inputs"]), ("COMPLETE", begun["run"], begun["inputs"]))
        self.assertEqual((end["job"], end["outputs"][0]["name"]), ({"namespace": "n", "name": "j"}, "o"))
        self.assertEqual(lineage.end(begun, "ABORT")["eventType"], "ABORT")
        self.assertEqual(begun["outputs"], [])

    def test_the_id_of_a_run_begins_with_the_time(self) -> None:
        """It is a UUID of version 7, and no two are the same."""
        before = time.time_ns() // 1_000_000
        ids = [uuid.UUID(lineage.run_id()) for _ in range(1000)]
        after = time.time_ns() // 1_000_000
        self.assertEqual({(one.version, one.variant) for one in ids}, {(7, uuid.RFC_4122)})
        self.assertTrue(all(before <= one.int >> 80 <= after for one in ids))
        self.assertEqual(len({one.int & (1 << 62) - 1 for one in ids}), 1000)
        self.assertGreater(len({one.int >> 64 & 0xFFF for one in ids}), 100)

    def test_what_nodes_would_leave_out_is_an_error(self) -> None:
        """A place that is none, a text in place of a list, a stage with an unknown member, a job without a name."""
        for uri in ("b/t", "hdfs://h/t", "s3://b", "s3://b/", "s3://b/t/*.parquet", ""):
            with self.subTest(uri), self.assertRaisesRegex(ValueError, "inputs: .* is not s3://bucket/key"):
                lineage.start("j", namespace="n", inputs=[uri])
        with self.assertRaisesRegex(TypeError, "give a list of URIs"):
            lineage.start("j", namespace="n", outputs="s3://b/t")
        with self.assertRaisesRegex(ValueError, "stage 0 has 'read'"):
            lineage.start("j", namespace="n", stages=[{"read": ["s3://b/t"]}])
        with self.assertRaisesRegex(ValueError, "reads of stage 'x'"):
            lineage.start("j", namespace="n", stages=[{"name": "x", "reads": ["t"]}])
        wrong: tuple[tuple[dict[str, Any], str], ...] = (
            ({"life": "long"}, "life 'long' is none of run"),
            ({"priority": 101}, "the priority of the run is 101"),
            ({"stages": [{"priority": True}]}, "the priority of stage '0' is True"),
            ({"stages": [{"bytes": -1}]}, "stage '0' reads -1"),
            ({"stages": [{"life": ""}]}, "life '' is none of run"),
        )
        for more, why in wrong:
            with self.subTest(why), self.assertRaisesRegex(ValueError, why):
                lineage.start("j", namespace="n", **more)
        with self.assertRaisesRegex(ValueError, "the namespace has no name"):
            lineage.start("j", namespace=" ")
        with self.assertRaisesRegex(ValueError, "no time zone"):
            lineage.start("j", namespace="n", deadline=datetime(2026, 11, 27))


class Reading(unittest.TestCase):
    """A block of a program that reads."""

    @staticmethod
    def _sent(requests: list[Request]) -> list[Mapping[str, Any]]:
        return [json.loads(request.body) for request in requests]

    def test_a_block_is_a_run_that_starts_and_completes(self) -> None:
        """Both events have the same run, and the block is given its id."""
        with open_port(always(_TAKEN)) as port:
            client = shoal.Client(port.url)
            with client.reading("j", namespace="n", inputs=["s3://b/t"], outputs=["s3://b/o"]) as run:
                self.assertEqual(len(port.requests), 1)
        self.assertEqual({(one.method, one.path) for one in port.requests}, {("POST", "/api/v1/lineage")})
        start, end = self._sent(port.requests)
        self.assertEqual((start["eventType"], end["eventType"]), ("START", "COMPLETE"))
        self.assertEqual((start["run"], end["run"]), ({"runId": run}, {"runId": run}))
        self.assertEqual(end["inputs"], [{"namespace": "s3://b", "name": "t"}])
        self.assertLessEqual(start["eventTime"], end["eventTime"])

    def test_an_exception_goes_on_and_is_told(self) -> None:
        """A program that was stopped is told from one that failed."""
        for error, kind in ((OSError("disk"), "FAIL"), (KeyboardInterrupt(), "ABORT")):
            with self.subTest(kind), open_port(always(_TAKEN)) as port:
                reading = shoal.Client(port.url).reading("j", namespace="n", inputs=["s3://b/t"])
                with self.assertRaises(type(error)) as caught, reading:
                    raise error
                self.assertIs(caught.exception, error)
                self.assertEqual(self._sent(port.requests)[1]["eventType"], kind)

    def test_a_node_that_gives_no_answer_stops_nothing(self) -> None:
        """None listens, it breaks off, has no room, is of an older release, or finds the names too long."""
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            self._goes_on(f"http://127.0.0.1:{unused.getsockname()[1]}")
        for reply in (Reply(None), Reply(503, b"full\nhint: later"), Reply(404, b"no page"), Reply(413), Reply(500)):
            with self.subTest(reply), open_port(always(reply)) as port:
                self._goes_on(port.url)
                self.assertEqual(len(port.requests), 2)

    def _goes_on(self, url: str) -> None:
        reading = shoal.Client(url).reading("j", namespace="n", inputs=["s3://b/t"])
        with self.assertLogs("shoal", "WARNING") as logs, reading:
            seen = len(logs.records)
        self.assertEqual((seen, len(logs.records)), (1, 2))
        self.assertIn("START of n/j is not noted", logs.output[0])
        self.assertIn("COMPLETE of n/j is not noted", logs.output[1])

    def test_a_silent_node_is_waited_for_briefly(self) -> None:
        """The client's own time may be longer."""
        with socket.create_server(("127.0.0.1", 0)) as silent, mock.patch("shoal.client._NOTE_S_MAX", 0.1):
            began = time.monotonic()
            client = shoal.Client(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=30, token="of-these-tests")
            with self.assertLogs("shoal", "WARNING") as logs, client.reading("j", namespace="n"):
                pass
        self.assertLess(time.monotonic() - began, 10)
        self.assertIn("did not answer within 0.1 s", logs.output[0])

    def test_mistakes_are_raised_before_the_block(self) -> None:
        """A namespace without a rule, a wrong token, arguments that nodes do not take."""
        kinds = ((400, shoal.InvalidOrder), (401, shoal.Unauthorized), (403, shoal.Forbidden))
        for status, kind in kinds:
            with self.subTest(status), open_port(always(Reply(status, b"no rule allows it\nhint: add one"))) as port:
                reading = shoal.Client(port.url).reading("j", namespace="n", inputs=["s3://b/t"])
                with self.assertRaisesRegex(kind, "no rule allows it\nhint: add one"), reading:
                    self.fail("the block runs")
                self.assertEqual(len(port.requests), 1)
        with self.assertRaisesRegex(ValueError, "not s3://"):
            shoal.Client("http://127.0.0.1:9").reading("j", namespace="n", inputs=["t"])

    def test_a_mistake_at_the_end_only_is_logged(self) -> None:
        """The rule was removed meanwhile; and an exception of the block is not replaced."""
        for error in (None, OSError("disk")):
            replies = [_TAKEN, Reply(403, b"no rule")]
            with open_port(lambda _, left=replies: left.pop(0)) as port:  # type: ignore[misc]
                with self.assertLogs("shoal", "WARNING") as logs:
                    try:
                        with shoal.Client(port.url).reading("j", namespace="n", inputs=["s3://b/t"]):
                            if error:
                                raise error
                    except OSError as caught:
                        self.assertIs(caught, error)
                self.assertEqual(len(logs.records), 1)

    def test_a_list_that_has_grown_too_long_is_logged_and_not_sent(self) -> None:
        """The program ran yesterday, when it was shorter."""
        uris = [f"s3://b/{number}" for number in range(1001)]
        with open_port(always(_TAKEN)) as port, self.assertLogs("shoal", "WARNING") as logs:
            with shoal.Client(port.url).reading("j", namespace="n", inputs=uris):
                pass
            with self.assertRaises(OSError), shoal.Client(port.url).reading("j", namespace="n", outputs=uris):
                raise OSError
            with shoal.Client(port.url).reading("j", namespace="n", stages=[{}] * 257):
                pass
        self.assertEqual(port.requests, [])
        self.assertIn("1001 inputs, and nodes take 1000", logs.output[0])
        self.assertIn("1001 outputs, and nodes take 1000", logs.output[1])
        self.assertIn("257 stages, and nodes take 256", logs.output[2])


class Answers(unittest.TestCase):
    """What became of hints, and what runs did."""

    def test_hints_have_their_reader_and_their_bytes(self) -> None:
        """The text is one line."""
        kept = hint_use(keeps=True, early_ms=None, wasted_bytes=0, first_used=None)
        with open_port(always(Reply.of_json({"hints": [hint_use(), kept]}))) as port:
            first, second = shoal.Client(port.url).hints()
        self.assertEqual(port.requests[0].path, "/hints")
        self.assertEqual((first.id, first.task.kind, first.state, first.keeps), (TASK_ID, "hint", "done", False))
        self.assertEqual((first.reader, str(first.reader)), (shoal.JobName("ml", "train"), "ml/train"))
        self.assertEqual((first.stage, first.inputs, first.hint.parents), (1, ("s3://b/x", "s3://b/y"), ()))
        self.assertEqual((first.hint.awaited, first.hint.short_lived), (("s3://b/tmp",), ()))
        self.assertEqual((first.hint.priority, first.hint.bytes), (7, None))
        sizes = (first.brought_bytes, first.used_bytes, first.evicted_bytes, first.wasted_bytes, first.early_ms)
        self.assertEqual(sizes, (4 << 20, 3 << 20, 0, 1 << 20, 1500))
        self.assertEqual(
            str(first),
            "ml/train reads s3://b/x s3://b/y: done, 4.0 MiB brought, 3.0 MiB used, 1.0 MiB wasted, 1.5 s early",
        )
        self.assertEqual((second.keeps, second.early_ms, second.first_used), (True, None, None))
        assert first.brought is not None and first.first_used is not None
        self.assertEqual(first.first_used - first.brought, timedelta(seconds=1.5))
        self.assertIn("done, kept, 4.0 MiB brought", str(second))
        self.assertTrue(str(second.task).startswith("hint of ml/train: done"))

    def test_runs_are_those_of_all_nodes(self) -> None:
        """They are fetched node by node, and only a line feed ends a line."""
        members = [
            {"name": name, "topology": "t", "s3": "a", "admin": "a", "state": "alive"} for name in ("n0", "n1", "a/b")
        ]

        def answer(request: Request) -> Reply:
            if request.path == "/members":
                return Reply.of_json({"self": "n1", "members": members})
            lines = {"/runs": '{"job": "a\u2028b"}\n{"job": "c"}\n', "/nodes/n0/runs": ""}
            return Reply(200, lines.get(request.path, '{"job": "d"}\n').encode())

        with open_port(answer) as port:
            runs = shoal.Client(port.url).runs()
            self.assertEqual(next(runs), {"job": "a\u2028b"})
            self.assertEqual(len(port.requests), 1)
            self.assertEqual(list(runs), [{"job": "c"}, {"job": "d"}])
        paths = [request.path for request in port.requests]
        self.assertEqual(paths, ["/runs", "/members", "/nodes/n0/runs", "/nodes/a%2Fb/runs"])

    def test_answers_of_other_servers_are_named(self) -> None:
        """A page that is no list of runs, a task that is no hint, a batch without its counts."""
        for body in (b"<html>", b"[]\n", b'{"a": 1}\nx'):
            wrong = self.assertRaisesRegex(shoal.UnexpectedAnswer, "of /runs is no run")
            with self.subTest(body), open_port(always(Reply(200, body))) as port, wrong:
                list(shoal.Client(port.url).runs())
        with open_port(always(Reply.of_json({"hints": [hint_use(task=task())]}))) as port:
            (use,) = shoal.Client(port.url).hints()
            with self.assertRaisesRegex(shoal.UnexpectedAnswer, "is no hint"):
                str(use)
        with open_port(always(Reply.of_json({}))) as port, self.assertRaises(shoal.UnexpectedAnswer):
            shoal.Client(port.url).hint({})
