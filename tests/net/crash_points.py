"""A node is killed at each request of each operation on a dirty name, or the request or its answer is lost.

Between two requests a node changes nothing that outlives it, so its crash points are the moments before and after each
request. The suite finds them by doing each operation once without a fault, so a change of the node that adds a request
adds its points.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from real.processes import await_that

from .cluster import BACK
from .hand import Hand, Refused, body, value_of
from .history import IF_ABSENT, Operation, if_is
from .proxied import ProxiedCluster
from .proxy import Trap
from .request_names import IDLE
from .settled import bounded, counted, read_everywhere, settle
from .stories import Broken

# The least that a lake takes as a part that is not the last one.
_PART = f"part-{5 << 20}"
_SMALL = "small-3000"
# Requests that a node makes on its own, some time after a flush or removal.
_CLEANED = {"empty entry removed", "piece removed", "trash forgotten", "parts forgotten"}
_CLEANING = _CLEANED | {"list shortened"}
# Some requests of an operation may follow its answer.
_AFTERWARDS_S = 0.3
_CAUGHT_S = 20.0


@dataclass(frozen=True)
class Scene:
    """A cluster, a client, and the node that an operation runs at."""

    cluster: ProxiedCluster
    hand: Hand
    node: int

    def dirty(self, key: str, name: str = _SMALL) -> str:
        """Makes a dirty object; returns its value."""
        await_that(f"{key} is dirty", lambda: self.hand.put(key, name, self.node))
        return value_of(body(name))

    def clean(self, key: str) -> str:
        """Makes an object that only the lake has; returns its value."""
        data = body(f"{key}-clean-2000")
        began = time.monotonic()
        self.cluster.put_at_lake(key, data)
        written = Operation(key, "PUT", value_of(data), began, time.monotonic(), 0)
        self.hand.history.operations.append(written)
        return written.value

    def flush(self, key: str) -> None:
        """Waits until the lake has a dirty object, or the node is dead."""
        value = self.hand.history.operations[-1].value
        self.cluster.flush(self.node, key)
        deadline = time.monotonic() + _CAUGHT_S
        while self.cluster.at_lake(key) != value and self.cluster.is_alive(self.node):
            if time.monotonic() > deadline:
                raise Broken(f"{key} does not reach the lake")
            time.sleep(0.02)


@dataclass(frozen=True)
class Play:
    """The preparation, and the operation during which a node dies."""

    begin: Callable[[Scene, str], object]
    act: Callable[[Scene, str, object], object]
    """Whether the play is about requests that the node makes on its own some time later."""
    cleans: bool = False


def _nothing(scene: Scene, key: str) -> None:
    del scene, key


def _in_parts(scene: Scene, key: str) -> None:
    upload = scene.hand.upload(key, (_PART, _SMALL), scene.node)
    if not scene.hand.complete(key, upload, scene.node):
        raise Refused(f"{key} cannot be completed")


def _flushed(scene: Scene, key: str) -> None:
    _in_parts(scene, key)
    scene.flush(key)


def _uploads(scene: Scene, key: str, _: object) -> None:
    upload = scene.hand.upload(key, (_PART, _SMALL), scene.node)
    scene.hand.complete(key, upload, scene.node)


def _puts(scene: Scene, key: str, condition: str = "", mode: str = "") -> None:
    headers = {"x-shoal-write": mode} if mode else {}
    scene.hand.put(key, "second-70000", scene.node, condition, headers)


def _copies(scene: Scene, key: str, value: object) -> None:
    scene.hand.copy(key, str(value), f"{key}.copy", scene.node)


def _removes_both(scene: Scene, key: str, _: object) -> None:
    scene.hand.delete_all([key, f"{key}.clean"], scene.node)


PLAYS = {
    "PUT": Play(_nothing, lambda scene, key, _: _puts(scene, key)),
    "PUT over a dirty object": Play(Scene.dirty, lambda scene, key, _: _puts(scene, key)),
    "PUT over a clean object": Play(Scene.clean, lambda scene, key, _: _puts(scene, key)),
    "PUT if there is nothing": Play(_nothing, lambda scene, key, _: _puts(scene, key, IF_ABSENT)),
    "PUT over this dirty object": Play(Scene.dirty, lambda scene, key, value: _puts(scene, key, if_is(str(value)))),
    "PUT through": Play(Scene.dirty, lambda scene, key, _: _puts(scene, key, mode="through")),
    "PUT around": Play(Scene.dirty, lambda scene, key, _: _puts(scene, key, mode="around")),
    "DELETE of a dirty object": Play(Scene.dirty, lambda scene, key, _: scene.hand.delete(key, scene.node)),
    "DELETE of a clean object": Play(Scene.clean, lambda scene, key, _: scene.hand.delete(key, scene.node)),
    "DELETE of a dirty and a clean object": Play(
        lambda scene, key: (scene.dirty(key), scene.clean(f"{key}.clean")), _removes_both
    ),
    "COPY of a dirty object": Play(Scene.dirty, _copies),
    "COPY of a clean object": Play(Scene.clean, _copies),
    "upload in parts": Play(_nothing, _uploads),
    "flush": Play(Scene.dirty, lambda scene, key, _: scene.flush(key)),
    "flush in parts": Play(_in_parts, lambda scene, key, _: scene.flush(key)),
    "cleaning": Play(_flushed, lambda scene, key, _: None, cleans=True),
}


@dataclass(frozen=True)
class Point:
    """The moment at which a node dies: at this request of this operation, the first, the second, ... of its name."""

    play: str
    name: str
    ordinal: int
    is_answered: bool

    def __str__(self) -> str:
        moment = "after" if self.is_answered else "before"
        return f"{self.play}: {moment} {self.name} {self.ordinal}"


def points_of(cluster: ProxiedCluster, hand: Hand) -> list[Point]:
    """Does each operation once, and returns all crash points."""
    points = []
    for number, (title, play) in enumerate(PLAYS.items()):
        scene = Scene(cluster, hand, 1 + number % len(cluster.nodes))
        key = f"{BACK}found-{number}."
        before = play.begin(scene, key)
        began = time.monotonic()
        play.act(scene, key, before)
        if play.cleans:
            await_that("the node cleans", lambda: not _CLEANED.difference(cluster.proxy.passed(began, scene.node)))  # noqa: B023
        time.sleep(_AFTERWARDS_S)
        passed = [name for name in cluster.proxy.passed(began, scene.node) if name not in IDLE]
        # Requests of other kinds may be left from the play before.
        counts = Counter(sorted(_CLEANED) if play.cleans else (name for name in passed if name not in _CLEANING))
        for name, count in counts.items():
            for ordinal in range(1, count + 1):
                points += [Point(title, name, ordinal, answered) for answered in (False, True)]
    return points


def kill_at_each(cluster: ProxiedCluster, seed: int, at_most: int = 0) -> str:
    """Kills a node at each point, or at `at_most` random ones, and checks the state that it leaves."""
    hand = cluster.hand(timeout_s=10)
    points, found = _chosen(cluster, hand, seed, at_most)
    missed: list[str] = []
    with ThreadPoolExecutor(len(cluster.nodes)) as pool:
        returning: dict[int, Future[None]] = {}
        for number, point in enumerate(points):
            node = 1 + number % len(cluster.nodes)
            if node in returning:
                returning.pop(node).result()
            scene = Scene(cluster, hand, node)
            if not _killed_at(scene, point, f"{BACK}{seed}-{number}."):
                missed.append(str(point))
            returning[node] = pool.submit(cluster.start_again, node)
        for future in returning.values():
            future.result()
    return f"killed at {_ended(scene, points, missed)}; {found} points, seed {seed}"


def lose_each(cluster: ProxiedCluster, seed: int, at_most: int = 0) -> str:
    """Loses each request and each answer, or `at_most` random ones, and checks the state that this leaves."""
    hand = cluster.hand(timeout_s=10)
    points, found = _chosen(cluster, hand, seed, at_most)
    missed: list[str] = []
    for number, point in enumerate(points):
        scene = Scene(cluster, hand, 1 + number % len(cluster.nodes))
        trap = Trap(
            scene.node, point.name, point.ordinal, loses_request=not point.is_answered, loses_answer=point.is_answered
        )
        if not _caught_at(scene, point, f"{BACK}{seed}-{number}.", trap, list(cluster.nodes)):
            missed.append(str(point))
    # A request without an answer can take effect until then.
    time.sleep(2 * cluster.fence_s)
    for node in cluster.nodes:
        bounded(hand.history, node, time.monotonic())
    return f"lost {_ended(scene, points, missed)}; {found} points, seed {seed}"


def _chosen(cluster: ProxiedCluster, hand: Hand, seed: int, at_most: int) -> tuple[list[Point], int]:
    """Returns points in random order, `at_most` of them, and the number of all points."""
    found = points_of(cluster, hand)
    return random.Random(seed).sample(found, min(at_most or len(found), len(found))), len(found)


def _ended(scene: Scene, points: Sequence[Point], missed: Sequence[str]) -> str:
    if missed:
        raise Broken(f"{len(missed)} requests did not come again: {missed[:5]}")
    settle(scene.cluster, scene.hand.history)
    names = len({point.name for point in points})
    return f"{len(points)} requests of {names} kinds; " + counted(scene.hand.history)


def _killed_at(scene: Scene, point: Point, key: str) -> bool:
    """Returns whether the node died at this point. The other nodes read the names at once."""

    def kill() -> None:
        scene.cluster.kill(scene.node)

    fault = {"after": kill, "loses_answer": True} if point.is_answered else {"before": kill, "loses_request": True}
    trap = Trap(scene.node, point.name, point.ordinal, **fault)  # type: ignore[arg-type]
    others = [node for node in scene.cluster.nodes if node != scene.node]
    return _caught_at(scene, point, key, trap, others, kill)


def _caught_at(
    scene: Scene, point: Point, key: str, trap: Trap, readers: Sequence[int], kill: Callable[[], None] | None = None
) -> bool:
    """Does the operation with the trap set, then reads its names at `readers`. Returns whether the trap caught."""
    cluster, play, history = scene.cluster, PLAYS[point.play], scene.hand.history
    before = play.begin(scene, key)
    known = len(history.operations)
    cluster.proxy.set(trap)
    # A step on the way to the operation may fail.
    with contextlib.suppress(OSError, Refused):
        play.act(scene, key, before)
    caught = trap.caught.wait(_CAUGHT_S)
    cluster.proxy.take_away(trap)
    if caught:
        trap.over.wait(_CAUGHT_S)
    if kill:
        if not caught:
            kill()
        cluster.await_silence(scene.node)
        bounded(history, scene.node, time.monotonic())
    touched = {operation.key for operation in history.operations[known:]} | {key}
    read_everywhere(cluster, history, sorted(touched), [node for node in readers if cluster.is_alive(node)], key)
    return caught
