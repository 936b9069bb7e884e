"""Compares the client with docs/reference/openapi.yaml: its requests, its fields and their types, its errors."""

from __future__ import annotations

import dataclasses
import re
import unittest
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args

import yaml

import shoal
from shoal import errors, hints
from shoal.client import Objects
from tests.port import TASK_ID, Reply, Request, always, open_port, task

_DOCUMENT = yaml.safe_load((Path(__file__).parents[3] / "docs/reference/openapi.yaml").read_text(encoding="utf-8"))

# Operations that the client leaves to monitoring, to the console, and to commands about whole clusters.
_LEFT_OUT = {
    "console",
    "getTimeline",
    "healthz",
    "history",
    "listCached",
    "metrics",
    "pageOfNode",
    "rebuild",
    "unpack",
}
# The schemas of what only the console and `shoal ls` read.
_OF_OTHERS = {"CachedPage", "CachedPage.objects", "History", "Timeline", "Timeline.jobs", "Timeline.files"}

_SCHEMAS: dict[str, type] = {
    "Task": shoal.Task,
    "Task.manifest": shoal.Manifest,
    "Task.document": shoal.PlanDocument,
    "Task.plan": shoal.PlanProgress,
    "Task.plan.jobs": shoal.JobCounts,
    "Task.plan.troubled": shoal.TroubledJob,
    "Task.plan.transfers": shoal.Transfer,
    "Task.plan.issues": shoal.PlanIssue,
    "Task.plan.arrivals": shoal.Arrival,
    "Task.plan.replanned": shoal.Replanned,
    "Hint": shoal.Hint,
    "Hint.reader": shoal.JobName,
    "HintList": hints.HintList,
    "HintList.hints": shoal.HintUse,
    "BatchAnswer": hints.BatchAnswer,
    "BatchAnswer.summary": hints.BatchSummary,
    "BatchAnswer.failed_events": shoal.FailedEvent,
    "Task.errors": shoal.ObjectError,
    "Task.nodes": shoal.NodeCounts,
    "ObjectCounts": shoal.ObjectCounts,
    "ByteCounts": shoal.ByteCounts,
    "Flush": shoal.Flush,
    "Packs": shoal.Packs,
    "Handoff": shoal.Handoff,
    "Readiness": shoal.Readiness,
    "Condition": shoal.Condition,
    "Status": shoal.Status,
    "Status.node": shoal.NodeIdentity,
    "Status.store": shoal.StoreStatus,
    "Status.store.pins": shoal.PinTotals,
    "Status.tasks": shoal.TaskTotals,
    "Status.write_back": shoal.WriteBackStatus,
    "Members": shoal.Members,
    "Members.members": shoal.Member,
    "Explanation": shoal.Explanation,
    "Explanation.version": shoal.Version,
    "Explanation.pins": shoal.Pin,
    "Explanation.blocks": shoal.Block,
    "Explanation.blocks.worth": shoal.Worth,
    "Explanation.completeness": shoal.Completeness,
    "Explanation.entries": shoal.DirectoryEntry,
}

# Schemas of texts that have a type of their own.
_WORDS = {
    "TaskKind": shoal.TaskKind,
    "TaskState": shoal.TaskState,
    "HandoffState": shoal.HandoffState,
}


def _resolved(node: Any) -> Any:
    while "$ref" in node:
        found = _DOCUMENT
        for part in node["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        node = found
    return node


def _schema(place: str) -> Any:
    """Returns the schema at a place such as Task.errors: of the items, if it is a list."""
    name, *members = place.split(".")
    schema = _DOCUMENT["components"]["schemas"][name]
    for member in members:
        schema = _resolved(schema["properties"][member])
        schema = _resolved(schema.get("items", schema))
        if isinstance(schema.get("additionalProperties"), dict):
            schema = schema["additionalProperties"]
    return schema


def _annotation(place: str, name: str, schema: Any, is_required: bool) -> str:
    """Returns the type of a field as the client has to write it."""
    if "oneOf" in schema:
        choice, nothing = schema["oneOf"]
        assert nothing == {"type": "null"}, place
        return _annotation(place, name, choice, False)
    reference = schema.get("$ref", "").rpartition("/")[2]
    schema = _resolved(schema)
    kinds = schema.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    kind = next(kind for kind in kinds if kind != "null")
    is_optional = "null" in kinds or not is_required
    own = _SCHEMAS.get(f"{place}.{name}", _SCHEMAS.get(reference))
    if kind == "array":
        item = _annotation(place, name, schema["items"], True) if own is None else own.__name__
        return f"tuple[{item}, ...]"
    if kind == "boolean" and not is_required:
        return "bool"
    if isinstance(schema.get("additionalProperties"), dict):
        value = own.__name__ if own else _annotation(place, name, schema["additionalProperties"], True)
        return f"Mapping[str, {value}]"
    if schema.get("format") == "date-time":
        known = "datetime"
    elif reference in _WORDS:
        known = reference
    elif own is not None:
        known = own.__name__
    else:
        known = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}[kind]
    return f"{known} | None" if is_optional else known


def _operations() -> dict[tuple[str, str], Any]:
    return {
        (method.upper(), path): {
            **operation,
            "parameters": [*item.get("parameters", []), *operation.get("parameters", [])],
        }
        for path, item in _DOCUMENT["paths"].items()
        for method, operation in item.items()
        if method in ("get", "post", "put", "delete", "patch")
    }


def _operation(request: Request) -> Any:
    path = re.sub(rf"/{TASK_ID}(/|$)", r"/{id}\1", request.path)
    return _operations()[request.method, path]


def _example(schema: Any) -> Any:
    """Returns a value of a schema that has all members that must be there, and no other."""
    schema = _resolved(schema)
    if "oneOf" in schema:
        return _example(schema["oneOf"][-1])
    kind = schema["type"] if isinstance(schema["type"], str) else schema["type"][0]
    if kind == "object":
        members = {name: _example(schema["properties"][name]) for name in schema.get("required", ())}
        names = isinstance(schema.get("additionalProperties"), dict)
        return members if names else {**members, "member-of-a-later-release": {}}
    if schema.get("format") == "date-time":
        return schema["examples"][0] if "examples" in schema else "2026-11-27T18:00:00Z"
    if "enum" in schema:
        return schema["enum"][0]
    return {"string": "x", "integer": 7, "number": 0.5, "boolean": True, "array": [], "null": None}[kind]


class Document(unittest.TestCase):
    """The client and the document say the same."""

    def test_the_fields_of_answers_are_those_of_the_document(self) -> None:
        """Each field, and whether it may be absent."""
        for place, kind in _SCHEMAS.items():
            schema = _schema(place)
            required = schema.get("required", ())
            expected = {
                name: _annotation(place, name, member, name in required)
                for name, member in schema["properties"].items()
            }
            fields = {field.name: field.type for field in dataclasses.fields(kind)}
            self.assertEqual(fields, expected, place)

    def test_every_object_of_an_answer_has_a_class(self) -> None:
        """A schema that the document gains is seen here."""

        def objects(place: str, schema: Any) -> set[str]:
            found = set()
            for name, member in schema.get("properties", {}).items():
                if "$ref" in member.get("items", member):
                    continue
                inner = _resolved(member.get("items", member))
                inner = inner["additionalProperties"] if isinstance(inner.get("additionalProperties"), dict) else inner
                if "properties" in inner:
                    found |= {f"{place}.{name}"} | objects(f"{place}.{name}", inner)
            return found

        schemas = _DOCUMENT["components"]["schemas"]
        unread = {"Notification", "Order", "TaskList"}
        named = {name for name, schema in schemas.items() if schema["type"] == "object"} - unread
        nested = {place for name in named for place in objects(name, schemas[name])}
        self.assertEqual(set(_SCHEMAS), (named | nested) - _OF_OTHERS)

    def test_kinds_and_states_are_those_of_the_document(self) -> None:
        """In their order, too."""
        for name, words in _WORDS.items():
            self.assertEqual(list(get_args(words)), _schema(name)["enum"], name)

    def test_answers_with_nothing_but_what_must_be_there_are_understood(self) -> None:
        """And with members that the document does not name."""
        calls: dict[str, Callable[[shoal.Client], object]] = {
            "Task": lambda client: client.task(TASK_ID),
            "Flush": shoal.Client.flush,
            "Handoff": shoal.Client.drain,
            "Readiness": shoal.Client.readiness,
            "Status": shoal.Client.status,
            "Members": shoal.Client.members,
            "Explanation": lambda client: client.explain("s3://b/k"),
        }
        for place, call in calls.items():
            reply = Reply.of_json(_example(_schema(place)))
            with self.subTest(place), open_port(always(reply)) as port:
                self.assertIsInstance(call(shoal.Client(port.url)), _SCHEMAS[place])

    def test_requests_are_those_of_the_document(self) -> None:
        """Every operation, every parameter, every field of an order; nothing that is not described."""
        called: dict[str, set[str]] = {}
        fields: set[str] = set()
        for request in self._requests():
            operation = _operation(request)
            name = operation["operationId"]
            called.setdefault(name, set()).update(request.query)
            if request.body:
                media = request.headers["content-type"].partition(";")[0]
                self.assertIn(media, operation["requestBody"]["content"])
                if b'"uri"' in request.body:
                    fields |= set(yaml.safe_load(request.body))
        operations = {operation["operationId"]: operation for operation in _operations().values()}
        self.assertEqual(set(called), set(operations) - _LEFT_OUT)
        for name, sent in called.items():
            described = {parameter["name"] for parameter in operations[name]["parameters"]} - {"id"}
            self.assertEqual(sent, described, name)
        self.assertEqual(fields, set(_schema("Order")["properties"]))

    def _requests(self) -> list[Request]:
        def answer(request: Request) -> Reply:
            operation = _operation(request)
            if request.path == "/runs":
                return Reply(200, b'{"job": "etl"}\n')
            if request.path == "/api/v1/lineage":
                return Reply(201)
            schemas = [
                content["schema"]
                for status, response in operation["responses"].items()
                if status.startswith("2")
                for content in _resolved(response).get("content", {}).values()
            ]
            if operation["operationId"] == "listTasks":
                return Reply.of_json({"tasks": [task()], "next": None})
            return Reply.of_json(_example(schemas[0]))

        with open_port(answer) as port:
            client = shoal.Client(port.url)
            hour = timedelta(hours=1)
            everything: dict[str, Any] = {
                "identity": "me",
                "to": "n0",
                "rate": 1,
                "deadline": hour,
                "dry_run": True,
            }
            choices: tuple[Objects, ...] = ("s3://b/p/", ["s3://b/p/x"], {"Records": []})
            for objects in choices:
                client.prefetch(objects, **everything)
                client.pin(objects, hour, **everything)
                client.unpin(objects, identity="me")
                client.evict(objects, identity="me")
                client.cached(objects, identity="me")
            list(client.tasks("done", limit=1, before=TASK_ID))
            client.task(TASK_ID)
            client.cancel(TASK_ID)
            client.explain("s3://b/k", version="0" * 32, first=1, count=2)
            client.members()
            client.status()
            client.readiness()
            client.start_plan({}, identity="me")
            client.plan()
            client.stop_plan()
            client.flush("s3://b/p/")
            client.drain()
            client.undrain()
            client.hint({"eventType": "START"})
            with client.reading("etl", namespace="nightly", inputs=["s3://b/p/"]):
                client.hints()
                list(client.runs())
        return port.requests

    def test_every_described_refusal_has_a_class_of_its_own(self) -> None:
        """Those of operations that the client uses."""
        for operation in _operations().values():
            if operation["operationId"] not in _LEFT_OUT:
                for status in map(int, operation["responses"]):
                    if status >= 400:
                        self.assertIsNot(type(errors.of_answer(status, "")), shoal.Refused, status)
