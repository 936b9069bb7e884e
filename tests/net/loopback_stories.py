"""Tells the stories of clusters on loopback, some of them side by side."""

from __future__ import annotations

import multiprocessing
from collections.abc import Collection
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from real.etcd import EtcdUnavailable
from real.lakes import LakeUnavailable

from . import directory_stories, tier_stories
from .fabric import prepare
from .loopback import LoopbackStory
from .stories import CannotBeTold, failure

# Most of the time nodes wait for timeouts, so stories can run side by side.
_SIDE_BY_SIDE = 3


@dataclass(frozen=True)
class Telling:
    """The arguments that all stories of a run share. Without `kills` or `freezes` a few nodes fail in a story."""

    binary: Path
    folder: Path
    lake: str
    seed: int
    kills: int = 0
    freezes: int = 0
    is_long: bool = False


def stories(kills_asked: int = 0, freezes_asked: int = 0, is_long: bool = False) -> dict[str, LoopbackStory[Any]]:
    """Returns every story by its name."""
    return {**tier_stories.stories(kills_asked, freezes_asked, is_long), **directory_stories.stories(is_long)}


def tell_all(telling: Telling, names: Collection[str]) -> int:
    """Tells some stories at a time, each in a process of its own. Returns how many broke."""
    prepare()
    known = stories()
    # A process forked beside the threads of another story could wait forever for one of their locks.
    context = multiprocessing.get_context("spawn")
    broken = 0
    for is_alone in (False, True):
        some = [name for name in names if known[name].is_alone == is_alone]
        with ProcessPoolExecutor(1 if is_alone else _SIDE_BY_SIDE, context, max_tasks_per_child=1) as pool:
            broken += sum(pool.map(partial(_told_badly, telling), some))
    return broken


def _told_badly(telling: Telling, name: str) -> bool:
    story = stories(telling.kills, telling.freezes, telling.is_long)[name]
    logs = ""
    try:
        cluster = story.cluster(telling.binary, telling.folder / name, telling.lake)
        with cluster:
            try:
                told = story.tell(cluster, telling.seed)
            except Exception:
                logs = "\n".join(node.log.read_text(errors="replace")[-1500:] for node in cluster.nodes.values())
                raise
    except (CannotBeTold, EtcdUnavailable, LakeUnavailable) as reason:
        print(f"skipped: {name}: {reason}", flush=True)
        return False
    except Exception as trouble:
        print(f"{failure(name, telling.seed, trouble)}{logs}", flush=True)
        return True
    print(f"ok {name} (seed {telling.seed}): {told}", flush=True)
    return False
