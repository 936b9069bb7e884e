"""What the client sends, and what it makes of answers."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pickle
import socket
import ssl
import tempfile
import threading
import time
import unittest
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from unittest import mock

import shoal
from tests.port import TASK_ID, Reply, Request, always, open_port, task

_TOKEN = "a-token-of-these-tests"
_TLS = Path(__file__).parents[3] / "crates/shoal/tests/it/tls"


def running(_: Request) -> Reply:
    """Answers with a task that runs."""
    return Reply.of_json(task())


class Orders(unittest.TestCase):
    """What is sent for an order."""

    def test_a_prefix_is_an_order_in_json(self) -> None:
        """Every argument is a field of the order."""
        deadline = datetime(2026, 11, 27, 19, tzinfo=timezone(timedelta(hours=1)))
        with open_port(running) as port:
            client = shoal.Client(port.url)
            client.prefetch(
                "s3://b/p/**.parquet", identity="me", to="dc1/a", rate=5 * shoal.MiB, deadline=deadline, dry_run=True
            )
        (request,) = port.requests
        self.assertEqual((request.method, request.path, request.query), ("POST", "/tasks", {}))
        self.assertEqual(
            json.loads(request.body),
            {
                "kind": "prefetch",
                "uri": "s3://b/p/**.parquet",
                "identity": "me",
                "to": "dc1/a",
                "rate_bytes_per_second": 5242880,
                "deadline": "2026-11-27T18:00:00.000Z",
                "dry_run": True,
            },
        )

    def test_a_list_is_sent_line_by_line_with_the_order_in_the_query(self) -> None:
        """An iterator is enough, and any character but an end of line is kept."""
        uris = (f"s3://b/ä {number}" for number in range(100_000))
        with open_port(running) as port:
            shoal.Client(port.url).prefetch(uris, identity="a&b", dry_run=True)
        (request,) = port.requests
        self.assertEqual(request.query, {"kind": "prefetch", "identity": "a&b", "dry_run": "true"})
        self.assertEqual(request.headers["content-type"], "text/plain; charset=utf-8")
        lines = request.body.decode().splitlines()
        self.assertEqual((len(lines), lines[-1]), (100_000, "s3://b/ä 99999"))

    def test_a_notification_of_s3_is_passed_on(self) -> None:
        """It is the body, and the order is in the query."""
        with open_port(running) as port:
            shoal.Client(port.url).evict({"Records": []})
        (request,) = port.requests
        self.assertEqual(
            (request.query, json.loads(request.body), request.headers["content-type"]),
            ({"kind": "evict"}, {"Records": []}, "application/json"),
        )

    def test_a_notification_of_removals_alone_starts_no_task(self) -> None:
        """A node answers 204."""
        with open_port(always(Reply(204))) as port, self.assertRaisesRegex(shoal.NothingToDo, "no task begins"):
            shoal.Client(port.url).prefetch({"Records": [{}]})

    def test_items_that_would_be_other_lines_are_refused_before_anything_is_sent(self) -> None:
        """A comment, an end of line, or what is no URI."""
        with open_port(running) as port:
            client = shoal.Client(port.url)
            for item in ("# s3://b/k", "s3://b/k\ns3://b/other", "s3://b/k\r", "b/k", ""):
                with self.assertRaisesRegex(ValueError, "item 2 of the list"):
                    client.cached(["s3://b/a", item])
            wrong: Any = b"s3://b/a"
            with self.assertRaises(TypeError):
                client.cached(wrong)
            with mock.patch("shoal.client._LINES_MAX", 3), self.assertRaisesRegex(ValueError, "at most 3 objects"):
                client.cached("s3://b/a" for _ in iter(int, 1))
        self.assertEqual(port.requests, [])

    def test_times_need_a_zone_or_count_from_now(self) -> None:
        """A pin for three days ends in three days."""
        with open_port(running) as port:
            client = shoal.Client(port.url)
            with self.assertRaisesRegex(ValueError, "no time zone"):
                client.pin("s3://b/p/", datetime(2026, 11, 27))
            before = datetime.now(timezone.utc)
            client.pin("s3://b/p/", timedelta(days=3))
        (request,) = port.requests
        until = datetime.fromisoformat(json.loads(request.body)["until"].replace("Z", "+00:00"))
        self.assertLess(abs(until - before - timedelta(days=3)), timedelta(minutes=5))


class Answers(unittest.TestCase):
    """What answers become."""

    def test_a_task_has_its_fields_and_what_is_left(self) -> None:
        """Members that the client does not know are left alone."""
        told = task(
            bytes_per_second=1 << 20,
            deadline="2026-11-27T19:00:00+01:00",
            nodes={"n0": {"blocks": 2, "bytes": 3}},
            errors=[{"object": "s3://b/p/x", "error": "404"}],
            later={"a": 1},
        )
        with open_port(always(Reply.of_json(told))) as port:
            found = shoal.Client(port.url).task(TASK_ID)
        self.assertEqual((found.fraction, found.eta), (0.25, timedelta(seconds=3)))
        self.assertEqual(found.deadline, datetime(2026, 11, 27, 18, tzinfo=timezone.utc))
        self.assertEqual(found.nodes, {"n0": shoal.NodeCounts(blocks=2, bytes=3)})
        self.assertEqual(found.errors, (shoal.ObjectError("s3://b/p/x", "404"),))
        self.assertEqual(
            str(found),
            "prefetch s3://b/p/: 25%, 1.0 MiB of 4.0 MiB, 1 of 4 objects, 1.0 MiB/s, ETA 0:00:03",
        )

    def test_the_rest_is_unknown_until_objects_are_counted(self) -> None:
        """Neither a fraction nor an ETA is made up."""
        told = task(bytes_per_second=5)
        told["objects"]["total"] = told["bytes"]["total"] = None
        with open_port(always(Reply.of_json(told))) as port:
            found = shoal.Client(port.url).task(TASK_ID)
        self.assertEqual((found.fraction, found.eta, found.objects.total), (None, None, None))

    def test_answers_of_other_servers_are_named(self) -> None:
        """What is not JSON, not a task, or not what a member should be."""
        wrong = [b"<html>", b"[]", b'"x"', json.dumps(task(objects=3)).encode()]
        wrong += [json.dumps(task(created=when)).encode() for when in ("friday", 5, None)]
        for body in wrong:
            with self.subTest(body), open_port(always(Reply(200, body))) as port:
                with self.assertRaises(shoal.UnexpectedAnswer) as caught:
                    shoal.Client(port.url).task(TASK_ID)
                self.assertIn("hint: ", str(caught.exception))

    def test_refusals_carry_status_message_and_hint(self) -> None:
        """Each status has its class."""
        for status, kind in [
            (400, shoal.InvalidOrder),
            (401, shoal.Unauthorized),
            (403, shoal.Forbidden),
            (404, shoal.NotFound),
            (409, shoal.Conflict),
            (413, shoal.InvalidOrder),
            (415, shoal.InvalidOrder),
            (418, shoal.Refused),
            (503, shoal.NoRoom),
            (302, shoal.UnexpectedAnswer),
        ]:
            text = b"it is not taken\nbecause of this\nhint: do that\n"
            with self.subTest(status), open_port(always(Reply(status, text))) as port:
                with self.assertRaises(shoal.ShoalError) as caught:
                    shoal.Client(port.url).evict("s3://b/p/")
                error = caught.exception
                self.assertIs(type(error), kind)
                self.assertEqual(
                    (error.status, error.message, error.hint), (status, "it is not taken\nbecause of this", "do that")
                )
                self.assertEqual(str(error), text.decode().strip())
                self.assertEqual(len(port.requests), 1)

    def test_ids_are_no_paths(self) -> None:
        """Nothing is sent for what cannot be an id."""
        client = shoal.Client("http://127.0.0.1:9")
        for identifier in ("", "..", "a/cancel", "x?y"):
            with self.assertRaisesRegex(ValueError, "not the id"):
                client.task(identifier)


class Lists(unittest.TestCase):
    """Tasks in parts."""

    @staticmethod
    def _serve(request: Request) -> Reply:
        identifiers = [f"01ARZ3NDEKTSV4RRFFQ69G5F{number:02}" for number in range(30, 0, -1)]
        before = request.query.get("before", "Z")
        left = [identifier for identifier in identifiers if identifier < before]
        shown = left[: min(int(request.query["limit"]), 7)]
        following = shown[-1] if len(left) > len(shown) else None
        return Reply.of_json({"tasks": [task(id=identifier) for identifier in shown], "next": following})

    def test_all_parts_are_listed_as_they_are_needed(self) -> None:
        """One part is fetched before the second is looked at."""
        with open_port(self._serve) as port:
            listed = shoal.Client(port.url).tasks("running")
            next(listed)
            self.assertEqual(len(port.requests), 1)
            self.assertEqual(len(list(listed)), 29)
        self.assertEqual({request.query["state"] for request in port.requests}, {"running"})

    def test_a_limit_counts_over_all_parts(self) -> None:
        """Ten of thirty tasks, from two parts."""
        with open_port(self._serve) as port:
            client = shoal.Client(port.url)
            ten = list(client.tasks(limit=10))
            self.assertEqual(len({one.id for one in ten}), 10)
            older = next(client.tasks(before=ten[-1], limit=1))
            self.assertLess(older.id, ten[-1].id)
            with self.assertRaises(ValueError):
                client.tasks(limit=0)

    def test_a_list_that_goes_in_circles_ends(self) -> None:
        """A server that always names the same next part is left."""
        answer = Reply.of_json({"tasks": [task()], "next": TASK_ID})
        with open_port(always(answer)) as port, self.assertRaises(shoal.UnexpectedAnswer):
            list(shoal.Client(port.url).tasks())


class Waiting(unittest.TestCase):
    """A task is followed to its end."""

    @staticmethod
    def _story(*replies: Reply) -> Iterator[Reply]:
        yield from replies
        while True:
            yield replies[-1]

    def test_states_are_told_until_the_end(self) -> None:
        """A node that breaks off in between does not end the wait."""
        lost = [Reply(None)] * 5
        replies = [Reply.of_json(task(state="queued")), *lost, Reply.of_json(task()), Reply.of_json(task(state="done"))]
        story = self._story(*replies)
        with open_port(lambda _: next(story)) as port:
            states = [now.state for now in shoal.Client(port.url).wait(TASK_ID, every=0.01)]
        self.assertEqual(states, ["queued", "running", "done"])

    def test_a_failed_task_is_an_error_with_the_task(self) -> None:
        """Its objects are in the message."""
        failed = task(state="failed", errors=[{"object": "s3://b/p/x", "error": "404"}])
        with open_port(always(Reply.of_json(failed))) as port:
            with self.assertRaisesRegex(shoal.TaskFailed, "s3://b/p/x: 404") as caught:
                shoal.Client(port.url).result(TASK_ID)
            self.assertEqual(caught.exception.task.errors[0].object, "s3://b/p/x")

    def test_a_wait_ends_at_its_time(self) -> None:
        """The error says that the task goes on."""
        with open_port(running) as port, self.assertRaisesRegex(shoal.TimedOut, "hint: it goes on"):
            shoal.Client(port.url).result(TASK_ID, timeout=0.05)

    def test_a_node_that_stays_away_is_given_up(self) -> None:
        """After a silence of a minute, here of no time."""
        silence = mock.patch("shoal._waiting._SILENCE_S_MAX", 0.0)
        with open_port(always(Reply(None))) as port, silence, self.assertRaises(shoal.Unreachable):
            shoal.Client(port.url).result(TASK_ID)


class Tries(unittest.TestCase):
    """What is asked again, and what is not."""

    def test_questions_are_asked_again_and_orders_are_not(self) -> None:
        """A node that breaks off may have taken the order."""
        for reply in (Reply(None), Reply(200, json.dumps(task()).encode(), cut=9), Reply(502)):
            with self.subTest(reply), open_port(always(reply)) as port:
                client = shoal.Client(port.url)
                with self.assertRaises(shoal.ShoalError):
                    client.prefetch("s3://b/p/")
                self.assertEqual(len(port.requests), 1)
                with self.assertRaises(shoal.ShoalError):
                    client.task(TASK_ID)
                self.assertEqual(len(port.requests), 5)

    def test_an_order_is_tried_again_while_no_node_listens(self) -> None:
        """Nothing was sent, so nothing is done twice."""
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{unused.getsockname()[1]}"
            with self.assertLogs("shoal", logging.DEBUG) as logs, self.assertRaises(shoal.Unreachable) as caught:
                shoal.Client(url, token=_TOKEN).prefetch(["s3://b/a"])
        self.assertEqual(len(logs.records), 3)
        self.assertNotIn(_TOKEN, "".join(logs.output))
        self.assertIsNotNone(caught.exception.hint)

    def test_a_silent_node_is_left_after_the_time_out(self) -> None:
        """Whether it is silent at once, or sends its answer byte by byte."""
        with socket.create_server(("127.0.0.1", 0)) as silent:
            client = shoal.Client(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.1)
            with self.assertRaises(shoal.TimedOut):
                client.members()
            with self.assertRaises(shoal.TimedOut):
                client.prefetch("s3://b/p/")
        with socket.create_server(("127.0.0.1", 0)) as server:

            def drip() -> None:
                connection, _ = server.accept()
                with contextlib.suppress(OSError), connection:
                    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
                    for _ in range(1000):
                        connection.sendall(b" ")
                        time.sleep(0.02)

            thread = threading.Thread(target=drip)
            thread.start()
            with self.assertRaises(shoal.TimedOut):
                shoal.Client(f"http://127.0.0.1:{server.getsockname()[1]}", timeout=0.3).members()
            thread.join()

    def test_a_refusal_before_the_end_of_a_list_is_told(self) -> None:
        """The node answers and closes while the client sends."""
        refusal = b"HTTP/1.1 413 Too Large\r\ncontent-length: 4\r\nconnection: close\r\n\r\nlong"
        with socket.create_server(("127.0.0.1", 0)) as server:
            client = shoal.Client(f"http://127.0.0.1:{server.getsockname()[1]}")

            def serve() -> None:
                connection, _ = server.accept()
                connection.recv(1000)
                connection.sendall(refusal)
                connection.shutdown(socket.SHUT_WR)
                # What is no longer read resets the connection only once the client has the answer.
                while connection.recv(1 << 20):
                    pass
                connection.close()

            thread = threading.Thread(target=serve)
            thread.start()
            with self.assertRaises(shoal.InvalidOrder) as caught:
                client.prefetch(f"s3://b/{number}" for number in range(100_000))
            thread.join()
        self.assertEqual(caught.exception.message, "long")

    def test_an_endless_answer_is_left(self) -> None:
        """The size of an answer is bounded."""
        bound = mock.patch("shoal._transport._ANSWER_BYTES_MAX", 1000)
        too_long = self.assertRaisesRegex(shoal.UnexpectedAnswer, "longer than")
        with bound, open_port(always(Reply(200, b" " * 5000))) as port, too_long:
            shoal.Client(port.url).members()


class Access(unittest.TestCase):
    """Tokens and certificates."""

    def test_a_token_is_sent_and_shown_nowhere(self) -> None:
        """Neither as text, nor in errors, nor in a pickle."""
        with open_port(lambda _: Reply(401, b"who are you\nhint: show a token\n")) as port:
            client = shoal.Client(port.url, token=f"{_TOKEN}\n")
            with self.assertRaises(shoal.Unauthorized) as caught:
                client.tasks().__next__()
        self.assertEqual(port.requests[0].headers["authorization"], f"Bearer {_TOKEN}")
        texts = (repr(client), repr(vars(client)), repr(vars(client._transport)), repr(caught.exception))
        self.assertNotIn(_TOKEN, "".join(texts))
        with self.assertRaises(TypeError):
            pickle.dumps(client)

    def test_a_token_that_would_be_another_header_is_refused(self) -> None:
        """The error does not show it."""
        for token in ("", "two words", "a\nb: c", "ä"):
            with self.assertRaises(ValueError) as caught:
                shoal.Client(token=token)
            self.assertEqual(str(caught.exception), str(caught.exception).replace(token or "\0", ""))

    def test_urls_that_are_no_admin_port_are_refused(self) -> None:
        """A password in one is not shown."""
        for url in ("http://", "ftp://h", "http://u:pw@h", "http://h/path", "http://h:99999", "http://h?q", ""):
            with self.assertRaisesRegex(ValueError, "http://host:port") as caught:
                shoal.Client(url)
            self.assertNotIn("pw", str(caught.exception))
        self.assertEqual(repr(shoal.Client("[::1]:9100")), "Client('http://[::1]:9100')")

    def test_arguments_that_do_not_belong_together_are_refused(self) -> None:
        """A certificate without its key, and TLS without https."""
        for arguments in ({"cert": "c"}, {"key": "k"}, {"ca": "c"}, {"timeout": 0.0}):
            with self.assertRaises(ValueError):
                wrong: Any = arguments
                shoal.Client("http://127.0.0.1:9100", **wrong)

    def test_the_variables_of_the_command_are_understood(self) -> None:
        """The token is in a file."""
        with tempfile.TemporaryDirectory() as folder, open_port(running) as port:
            file = Path(folder) / "token"
            file.write_text(f"\n {_TOKEN} \nother\n")
            variables = {"SHOAL_ADMIN_URL": port.url, "SHOAL_ADMIN_TOKEN_FILE": str(file)}
            with mock.patch.dict(os.environ, variables):
                shoal.Client.from_environment().task(TASK_ID)
                file.write_text("\n")
                with self.assertRaisesRegex(ValueError, "holds no token"):
                    shoal.Client.from_environment()
        self.assertEqual(port.requests[0].headers["authorization"], f"Bearer {_TOKEN}")

    def test_certificates_prove_both_sides(self) -> None:
        """A port that is not trusted, a client without a certificate, and one whom the port's CA has signed."""
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(_TLS / "certificate.pem", _TLS / "private-key.pem")
        tls.load_verify_locations(_TLS / "client-ca.pem")
        tls.verify_mode = ssl.CERT_REQUIRED
        ca = _TLS / "certificate.pem"
        with open_port(running, tls) as port:
            with self.assertRaisesRegex(shoal.Unreachable, "not trusted"):
                shoal.Client(port.url).task(TASK_ID)
            for name in (None, "stranger"):
                shown = {"cert": _TLS / f"{name}.pem", "key": _TLS / f"{name}.key"} if name else {}
                with self.assertRaises(shoal.Unreachable):
                    shoal.Client(port.url, ca=ca, **shown).task(TASK_ID)  # type: ignore[arg-type]
            self.assertEqual(port.requests, [])
            client = shoal.Client(port.url, ca=ca, cert=_TLS / "client.pem", key=_TLS / "client.key")
            self.assertEqual(client.task(TASK_ID).state, "running")
