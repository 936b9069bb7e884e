"""The client: sends orders to a cluster, and reads the state of its nodes."""

from __future__ import annotations

import io
import json
import logging
import os
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, TypeVar, Union, cast, overload
from urllib.parse import quote

from shoal import lineage
from shoal._answer import When, moment
from shoal._transport import Body, StrPath, Transport
from shoal._waiting import states
from shoal.errors import Refused, ShoalError, UnexpectedAnswer
from shoal.hints import BatchAnswer, FailedEvent, HintList, HintResult, HintUse
from shoal.nodes import Explanation, Flush, FlushFailed, Handoff, Members, Readiness, Status
from shoal.tasks import Task, TaskKind, TaskState

# The objects of an order: a URI with a prefix or wildcards, a list of URIs, or an event notification of S3.
Objects = Union[str, Iterable[str], Mapping[str, Any]]
# A plan as `shoal plan HISTORY... > plan` writes it: the path of the file, its content, or the content as read by
# json.loads.
Document = Union[StrPath, bytes, Mapping[str, Any]]

# Events of OpenLineage, as json.loads returns them: one, or several.
Events = Union[Mapping[str, Any], Iterable[Mapping[str, Any]]]

# What else than a task can be waited for.
_Order = TypeVar("_Order", Flush, Handoff)

_log = logging.getLogger("shoal")

_DEFAULT_URL = "http://127.0.0.1:9100"

# What nodes take in one list.
_LINES_MAX = 4_000_000
_LIST_BYTES_MAX = 1 << 30
# Longer lists wait on the disk until they are complete.
_LIST_BYTES_IN_MEMORY = 4 << 20

# What nodes take as a plan.
_PLAN_BYTES_MAX = 64 << 20

# The events of one request, of which nodes take 1000, and the bytes that nodes take.
_BATCH_EVENTS_MAX = 500
_BATCH_BYTES_MAX = 16 << 20
# A program that reads need not wait longer for a node that only takes note of that.
_NOTE_S_MAX = 5.0
# The arguments, the token or the rules of the nodes are wrong, and stay so until somebody corrects them.
_MISTAKES = (400, 401, 403)

_PAGE = 100
_PAGE_MAX = 1000


class Client:
    """The admin port of a node: of any node of the cluster for tasks, the plan and members, of one for the rest.

    url      http://host:port or https://host:port
    token    a line of the nodes' `[admin] token_file`
    ca       file with the PEM certificates that sign those of https ports; without it those that the system trusts
    cert     file with a PEM certificate to show where `[admin] client_ca` asks for one, with its chain
    key      file with the PEM private key of that certificate, unencrypted
    timeout  seconds to wait for a connection, for the node to take more of a request, and for its answer

    Threads may share a client. Proxies of the environment are not used. Questions are asked again when a node
    breaks off; an order is sent again only if no connection came about, so that it is never taken twice.
    """

    def __init__(
        self,
        url: str = _DEFAULT_URL,
        token: str | None = None,
        ca: StrPath | None = None,
        cert: StrPath | None = None,
        key: StrPath | None = None,
        timeout: float = 30.0,
    ) -> None:
        self._transport = Transport(url, token=token, ca=ca, cert=cert, key=key, timeout=timeout)

    @classmethod
    def from_environment(cls, timeout: float = 30.0) -> Client:
        """Returns the client that the variables of the `shoal` command describe.

        SHOAL_ADMIN_URL, SHOAL_ADMIN_TOKEN_FILE, SHOAL_ADMIN_CA_FILE, SHOAL_ADMIN_CLIENT_CERT and
        SHOAL_ADMIN_CLIENT_KEY. The token is the first line of its file that is not empty.
        """
        token_file = os.environ.get("SHOAL_ADMIN_TOKEN_FILE")
        return cls(
            os.environ.get("SHOAL_ADMIN_URL", _DEFAULT_URL),
            token=_token_in(Path(token_file)) if token_file else None,
            ca=os.environ.get("SHOAL_ADMIN_CA_FILE"),
            cert=os.environ.get("SHOAL_ADMIN_CLIENT_CERT"),
            key=os.environ.get("SHOAL_ADMIN_CLIENT_KEY"),
            timeout=timeout,
        )

    def __repr__(self) -> str:
        return f"Client({self._transport.url!r})"

    def prefetch(
        self,
        objects: Objects,
        *,
        identity: str | None = None,
        to: str | None = None,
        rate: int | None = None,
        deadline: When | None = None,
        dry_run: bool = False,
    ) -> Task:
        """Orders that objects be fetched into the cache. Returns the task at once; `wait` follows it.

        objects   "s3://bucket/prefix" names all whose keys begin with the prefix; in a key, * stands for any bytes
                  but /, ** for any bytes, ? for one character, [abc] for one of some. Any other iterable names
                  single objects, one URI each. A mapping is an event notification of S3; one that tells of removed
                  objects alone raises `NothingToDo`.
        identity  access key of the identity in whose name the lake is asked; needed if the nodes know several
        to        the nodes that are to hold the objects: a node's name, or the beginning of a topology
        rate      the most bytes to fetch in a second, such as 100 * shoal.MiB
        deadline  when everything should be there; the task goes just fast enough
        dry_run   count objects, their bytes and what is cached already, and fetch nothing
        """
        return self._order("prefetch", objects, identity, _transfer(to, rate, deadline, dry_run))

    def pin(
        self,
        objects: Objects,
        until: When,
        *,
        identity: str | None = None,
        to: str | None = None,
        rate: int | None = None,
        deadline: When | None = None,
        dry_run: bool = False,
    ) -> Task:
        """Orders that objects be fetched and kept until a time, at most 400 days ahead. See `prefetch`."""
        fields = _transfer(to, rate, deadline, dry_run)
        return self._order("pin", objects, identity, {**fields, "until": moment(until)})

    def unpin(self, objects: Objects, *, identity: str | None = None) -> Task:
        """Orders that the pins of objects end. The objects stay in the cache like all others."""
        return self._order("unpin", objects, identity)

    def evict(self, objects: Objects, *, identity: str | None = None) -> Task:
        """Orders that every node remove objects from its cache. Pinned objects stay."""
        return self._order("evict", objects, identity)

    def cached(self, objects: Objects, *, identity: str | None = None) -> Task:
        """Orders that what is cached of objects be counted, and where: `result(task).nodes`."""
        return self._order("cached", objects, identity)

    def tasks(
        self, state: TaskState | None = None, *, limit: int | None = None, before: Task | str | None = None
    ) -> Iterator[Task]:
        """Yields the tasks of the cluster, the latest first. They are fetched in parts, as they are needed.

        state   only tasks in this state
        limit   at most so many in all
        before  only tasks older than this one
        """
        if limit is not None and limit < 1:
            raise ValueError("limit is a number of tasks, at least 1")
        return self._parts(state, limit, None if before is None else _id(before))

    def task(self, task: Task | str) -> Task:
        """Returns a task as it is now, by its id or an earlier state of it."""
        return Task._of(self._transport.get(_path(task)))

    def cancel(self, task: Task | str) -> Task:
        """Ends a task before its end. What it has done stays, except that the pins of a pin task end."""
        return Task._of(self._transport.post(f"{_path(task)}/cancel"))

    @overload
    def wait(self, order: Task | str, *, every: float = 0.5, timeout: float | None = None) -> Iterator[Task]: ...

    @overload
    def wait(self, order: _Order, *, every: float = 0.5, timeout: float | None = None) -> Iterator[_Order]: ...

    def wait(
        self, order: Task | str | Flush | Handoff, *, every: float = 0.5, timeout: float | None = None
    ) -> Iterator[Any]:
        """Yields what was ordered as it is now and then every so many seconds, until it is over.

        order  a task, such as a plan, or its id; what `flush` or `drain` of a client of this same node returned

        Nothing is asked before the first step of the loop; `result` waits without a loop. A node that is silent
        for less than a minute is waited for. Raises TaskFailed, FlushFailed or DrainEnded after the last
        state, unless that is a success; raises TimedOut after `timeout` seconds. What was ordered goes on when the
        wait ends early.
        """
        if isinstance(order, Flush):
            flush = order
            return states(lambda last: self._flush_now(last or flush), "the flush", "leave it", every, timeout)
        if isinstance(order, Handoff):
            return states(self._handoff_now, "the drain", "take it back by undrain", every, timeout)
        task = order
        return states(lambda _: self.task(task), f"the task {_id(task)}", "cancel it", every, timeout)

    @overload
    def result(self, order: Task | str, *, timeout: float | None = None) -> Task: ...

    @overload
    def result(self, order: _Order, *, timeout: float | None = None) -> _Order: ...

    def result(self, order: Task | str | Flush | Handoff, *, timeout: float | None = None) -> Any:
        """Waits until what was ordered is over, and returns its last state. Takes and raises what `wait` does."""
        # Only the last state is kept: a plan may take days.
        return deque(self.wait(order, timeout=timeout), maxlen=1).pop()

    def start_plan(self, document: Document, *, identity: str | None = None) -> Task:
        """Hands a plan to the nodes, which fetch, keep and remove what it says, in place of the plan in force.

        Returns at once; `wait` follows it. `document.replaces` names the plan whose place it took, if one was in
        force.

        document  what `shoal plan HISTORY...` wrote: the path of a file, the content as bytes, or the content as
                  json.loads returns it; at most 64 MiB
        identity  access key of the identity in whose name the lake is asked; needed if the nodes know several
        """
        content = _content(document)
        if len(content) > _PLAN_BYTES_MAX:
            raise ValueError(f"a plan has at most {_PLAN_BYTES_MAX} bytes: plan a shorter window")
        query = None if identity is None else {"identity": identity}
        body = Body(io.BytesIO(content), len(content), "application/json")
        return Task._of(self._transport.post("/plan", query, body))

    def plan(self) -> Task:
        """Returns the plan in force, or the last one that was. Raises NotFound if there is none."""
        return Task._of(self._transport.get("/plan"))

    def stop_plan(self) -> Task:
        """Ends the plan in force, and its pins. What was fetched stays like all else in the cache."""
        return Task._of(self._transport.delete("/plan"))

    def hint(self, events: Events) -> HintResult:
        """Sends events of OpenLineage: nodes bring what the runs in them read, and keep it until these runs end.

        events  an event as json.loads returns it, or an iterable of them. `lineage` makes events, and so do `dags` and
                every engine that knows OpenLineage

        All events are looked at before the first one is sent, in parts of at most 500. An event that a node does not
        take is no error: the result has its place among `events`, the reason, and whether it may be taken later, as
        when more than some 100 events a second came. After an error send all of them again: nodes know an event that
        comes twice. Raises TypeError or ValueError for what is no JSON object.
        """
        received = successful = 0
        failed: list[FailedEvent] = []
        for first, part in _batches(_encoded(events)):
            content = b"[" + b",".join(part) + b"]"
            body = Body(io.BytesIO(content), len(content), "application/json")
            answer = BatchAnswer._of(self._transport.post("/api/v1/lineage/batch", body=body))
            received += answer.summary.received
            successful += answer.summary.successful
            failed += (replace(event, index=first + event.index) for event in answer.failed_events)
        return HintResult(received, successful, tuple(failed))

    def reading(
        self,
        job: str,
        *,
        namespace: str,
        inputs: lineage.Inputs = (),
        outputs: Iterable[str] = (),
        stages: Iterable[Mapping[str, Any]] = (),
        deadline: When | None = None,
        life: lineage.Life | None = None,
        priority: int | None = None,
    ) -> AbstractContextManager[str]:
        """Tells the nodes in a `with` statement what the program reads in its block. See `lineage.start` and `running`.

        with client.reading("nightly/train", namespace="ml", inputs=["s3://bucket/corpus/"]):
            train()
        """
        return self.running(
            lineage.start(
                job,
                namespace=namespace,
                inputs=inputs,
                outputs=outputs,
                stages=stages,
                deadline=deadline,
                life=life,
                priority=priority,
            )
        )

    @contextmanager
    def running(self, begun: Mapping[str, Any]) -> Iterator[str]:
        """Sends an event at the start of a block, and the end of the same run at its end. Yields the run's id.

        begun  a START, as `lineage.start` and `dags` make it

        The end is COMPLETE, after an exception FAIL, and after one that is no Exception, such as KeyboardInterrupt,
        ABORT. The exception goes on.

        A hint never stops a program that could run: if the node does not answer within 5 seconds (or the shorter
        timeout of the client), has no room, or finds the event too long, a warning goes to the logger `shoal` and the
        block runs. What nobody but a person can correct is raised before the block: InvalidOrder (400), Unauthorized
        (401), and Forbidden (403), which is also the answer for a namespace without a `[[hints.rule]]`. Nothing about
        the end is raised.
        """
        excess = lineage.excess(begun)
        if excess is not None:
            _log.warning("no hint: it has %s", excess)
            yield begun["run"]["runId"]
            return
        self._note(begun, raised=_MISTAKES)
        try:
            yield begun["run"]["runId"]
        except BaseException as error:
            self._note(lineage.end(begun, "FAIL" if isinstance(error, Exception) else "ABORT"))
            raise
        self._note(lineage.end(begun))

    def hints(self) -> list[HintUse]:
        """Returns the latest hints of the cluster, at most 200, the latest first, and what became of their bytes."""
        return list(HintList._of(self._transport.get("/hints")).hints)

    def runs(self) -> Iterator[dict[str, Any]]:
        """Yields what runs that have ended read and wrote, as `shoal plan` reads it: of this node, then of all others.

        Each node knows the runs whose end came to it. They are fetched node by node, as they are needed. Raises
        Refused if a living node does not answer, so that no run is left out silently.
        """
        yield from self._runs("/runs")
        members = self.members()
        for member in members.members:
            if member.name != members.self:
                yield from self._runs(f"/nodes/{quote(member.name, safe='')}/runs")

    def flush(self, below: str | None = None) -> Flush:
        """Orders that this node bring the dirty objects of all nodes to the lake now. `wait` follows it.

        below  only objects below this s3://bucket/prefix
        """
        return Flush._of(self._transport.post("/flush", None if below is None else {"below": below}))

    def drain(self) -> Handoff:
        """Orders that this node give its blocks to other nodes, so that it can be stopped at no cost.

        It serves meanwhile. `wait` follows it until it is drained. Raises Conflict if the node caches alone.
        """
        return Handoff._of(self._transport.post("/drain"))

    def undrain(self) -> Handoff:
        """Takes the order to drain back: this node is home to its share of the blocks again."""
        return Handoff._of(self._transport.post("/undrain"))

    def readiness(self) -> Readiness:
        """Returns whether clients should be sent to this node, and why not. Needs no token."""
        return Readiness._of(self._transport.get("/readyz", accepted=503))

    def explain(
        self, uri: str, *, version: str | None = None, first: int | None = None, count: int | None = None
    ) -> Explanation:
        """Returns which blocks of an object this node holds, its pins here, and why. The lake is not asked.

        version       another version than the node's own, as an earlier answer named it
        first, count  the number of the first block, and the largest number of blocks (at most 4096)
        """
        given = {"object": uri, "version": version, "first": first, "count": count}
        query = {name: str(value) for name, value in given.items() if value is not None}
        return Explanation._of(self._transport.get("/explain", query))

    def members(self) -> Members:
        """Returns the living nodes that this node knows, itself included."""
        return Members._of(self._transport.get("/members"))

    def status(self) -> Status:
        """Returns the state of this node: its conditions, its room, its pins, and the tasks of the cluster."""
        return Status._of(self._transport.get("/status"))

    def _order(
        self,
        kind: TaskKind,
        objects: Objects,
        identity: str | None,
        fields: Mapping[str, str | int | bool] | None = None,
    ) -> Task:
        order: dict[str, str | int | bool] = {"kind": kind, **(fields or {})}
        if identity is not None:
            order["identity"] = identity
        if isinstance(objects, str):
            answer = self._transport.post("/tasks", body=Body.of_json({**order, "uri": objects}))
            return Task._of(answer)
        query = {name: str(value).lower() if value is True else str(value) for name, value in order.items()}
        if isinstance(objects, Mapping):
            return Task._of(self._transport.post("/tasks", query, Body.of_json(objects)))
        with tempfile.SpooledTemporaryFile(max_size=_LIST_BYTES_IN_MEMORY) as spooled:
            file = cast("IO[bytes]", spooled)
            length = _write_list(file, objects)
            return Task._of(self._transport.post("/tasks", query, Body(file, length, "text/plain; charset=utf-8")))

    def _note(self, event: Mapping[str, Any], raised: tuple[int, ...] = ()) -> None:
        """Sends an event. Raises refusals with a status that is to be `raised`, and logs all others."""
        try:
            self._transport.within(_NOTE_S_MAX).notify("/api/v1/lineage", Body.of_json(event))
        except ShoalError as error:
            if isinstance(error, Refused) and error.status in raised:
                raise
            job = event["job"]
            _log.warning("%s of %s/%s is not noted: %s", event["eventType"], job["namespace"], job["name"], error)

    def _runs(self, path: str) -> Iterator[dict[str, Any]]:
        # Only \n ends a line: JSON may have the other ends of lines in its texts.
        lines = self._transport.text(path).split("\n")
        for number, line in enumerate(filter(None, lines), start=1):
            try:
                run = json.loads(line)
            except ValueError:
                run = None
            if not isinstance(run, dict):
                raise UnexpectedAnswer(f"line {number} of {path} is no run", hint="ask the admin port of a node")
            yield run

    def _parts(self, state: TaskState | None, limit: int | None, before: str | None) -> Iterator[Task]:
        left = limit
        while left is None or left > 0:
            query = {"limit": str(_PAGE if left is None else min(left, _PAGE_MAX))}
            if state is not None:
                query["state"] = state
            if before is not None:
                query["before"] = before
            answer = self._transport.get("/tasks", query)
            tasks = [Task._of(task) for task in answer.parts("tasks")]
            yield from tasks
            following = answer.text_or_none("next")
            if following is None:
                return
            if before is not None and following.upper() >= before.upper():
                raise UnexpectedAnswer("the list of tasks does not come to an end")
            before = following
            left = None if left is None else left - len(tasks)

    def _flush_now(self, last: Flush) -> Flush:
        current = self.status().write_back.flush
        if current.order != last.order:
            raise FlushFailed(last, "how the flush ended is not known: there was another, or the node was restarted")
        return current

    def _handoff_now(self, last: Handoff | None) -> Handoff:
        handoff = self.status().drain
        if handoff is None:
            raise UnexpectedAnswer(f"{self._transport.url} caches alone", hint="ask the node that was to drain")
        return handoff


def _transfer(to: str | None, rate: int | None, deadline: When | None, dry_run: bool) -> dict[str, str | int | bool]:
    """Returns the fields of an order that fetches."""
    fields: dict[str, str | int | bool] = {}
    if to is not None:
        fields["to"] = to
    if rate is not None:
        fields["rate_bytes_per_second"] = rate
    if deadline is not None:
        fields["deadline"] = moment(deadline)
    if dry_run:
        fields["dry_run"] = True
    return fields


def _id(task: Task | str) -> str:
    return task.id if isinstance(task, Task) else task


def _path(task: Task | str) -> str:
    identifier = _id(task)
    if not identifier.isalnum():
        raise ValueError(f"{identifier!r} is not the id of a task: tasks() lists them")
    return f"/tasks/{quote(identifier, safe='')}"


def _encoded(events: Events) -> list[bytes]:
    """Returns each event as JSON. Raises TypeError or ValueError for what is none."""
    if isinstance(events, (str, bytes)):
        raise TypeError("the text of events is not read: give what json.loads returns")
    encoded = []
    for index, event in enumerate([events] if isinstance(events, Mapping) else events):
        if not isinstance(event, Mapping):
            raise TypeError(f"item {index} of the events is {type(event).__name__}, not an object of JSON")
        try:
            content = json.dumps(event, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"item {index} of the events is no JSON: {error}") from None
        if len(content) + 2 > _BATCH_BYTES_MAX:
            raise ValueError(f"item {index} of the events has {len(content)} bytes: nodes take {_BATCH_BYTES_MAX}")
        encoded.append(content)
    return encoded


def _batches(events: list[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """Yields events in parts that nodes take, each with the place of its first one."""
    first, size = 0, 0
    for index, event in enumerate(events):
        # A comma, or a bracket.
        size += len(event) + 1
        if index - first == _BATCH_EVENTS_MAX or size + 1 > _BATCH_BYTES_MAX:
            yield first, events[first:index]
            first, size = index, len(event) + 1
    if first < len(events):
        yield first, events[first:]


def _content(document: Document) -> bytes:
    """Returns a plan as a node reads it; of a file, a byte more than a node takes at most."""
    if isinstance(document, bytes):
        return document
    if isinstance(document, Mapping):
        return json.dumps(document, allow_nan=False).encode()
    if isinstance(document, str) and document.lstrip().startswith("{"):
        raise ValueError("the text of a plan is taken for a path: give it as bytes")
    with Path(document).open("rb") as file:
        return file.read(_PLAN_BYTES_MAX + 1)


def _write_list(file: IO[bytes], uris: Iterable[str]) -> int:
    """Writes URIs as lines, and returns their bytes. Raises ValueError for what a node would not take as one."""
    length = 0
    for number, uri in enumerate(uris, start=1):
        if not isinstance(uri, str):
            raise TypeError(f"item {number} of the list is {type(uri).__name__}, not the URI of an object")
        if not uri.startswith("s3://") or "\n" in uri or "\r" in uri:
            raise ValueError(f"item {number} of the list is not the URI of an object in one line: {uri!r:.200}")
        length += file.write(uri.encode() + b"\n")
        if number > _LINES_MAX or length > _LIST_BYTES_MAX:
            raise ValueError(
                f"a list has at most {_LINES_MAX} objects and {_LIST_BYTES_MAX} bytes: give several orders"
            )
    return length


def _token_in(path: Path) -> str:
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    token = next((line for line in lines if line), None)
    if token is None:
        raise ValueError(f"{path} holds no token")
    return token
