"""The stories of the write tier that need no network of racks, each on a cluster of its own."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Collection
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from real.etcd import EtcdUnavailable
from real.lakes import LakeUnavailable
from real.processes import StartError

from . import crash_points, hardships, kills
from .fabric import prepare
from .proxied import Layout, ProxiedCluster
from .stories import Broken, CannotBeTold

# Most of the time nodes wait for timeouts, so stories can run side by side.
_SIDE_BY_SIDE = 3
# The number of crash points in a run that is not long.
_POINTS = 36
_KILLS = 10
# A node with this timeout gives up a late lake before the lake answers.
_IMPATIENT = {"SHOAL_LAKE_WRITE_TIMEOUT": "5s"}


@dataclass(frozen=True)
class TierStory:
    """A story about a cluster. `tell` returns one line about how it went."""

    tell: Callable[[ProxiedCluster, int], str]
    layout: Callable[[], Layout] = Layout
    """Whether the suite tells the story only on request."""
    is_long: bool = False


@dataclass(frozen=True)
class Telling:
    """The arguments that all stories of a run share. Without `kills` the stories kill a few nodes."""

    binary: Path
    folder: Path
    lake: str
    seed: int
    kills: int = 0
    is_long: bool = False


def stories(kills_asked: int = 0, is_long: bool = False) -> dict[str, TierStory]:
    """Returns every story by its name, the longest ones first."""
    points = 0 if is_long else _POINTS
    late = Layout(nodes=2, stall_s=16, environment=dict.fromkeys((1, 2), _IMPATIENT))
    return {
        "a_lake_that_commits_half_a_minute_late_brings_nothing_back": TierStory(hardships.late_lake, lambda: late),
        "nodes_that_are_killed_one_after_the_other_lose_nothing": TierStory(
            partial(kills.tell, kills=kills_asked or _KILLS), lambda: Layout(kills.NODES, age="1s")
        ),
        "a_node_may_die_at_any_request_of_any_operation": TierStory(partial(crash_points.kill_at_each, at_most=points)),
        "requests_and_answers_that_are_lost_cost_no_write": TierStory(partial(crash_points.lose_each, at_most=points)),
        "an_etcd_without_leader_or_majority_costs_no_write": TierStory(
            hardships.etcd_without_majority, lambda: Layout(members=3, age="1s")
        ),
        "a_full_registry_costs_no_write": TierStory(
            hardships.full_registry, lambda: Layout(quota_bytes=16 << 20, age="1s")
        ),
        "clocks_that_are_minutes_apart_cost_no_write": TierStory(
            hardships.wrong_clocks, lambda: Layout(age="1s", environment=hardships.clocks())
        ),
        "an_owner_that_wakes_up_in_mid_flush_changes_nothing": TierStory(
            hardships.frozen_owner, lambda: Layout(nodes=5)
        ),
        "a_full_tier_costs_no_write": TierStory(hardships.full_tier, lambda: Layout(capacity="2MiB")),
        "an_owner_that_wakes_up_after_five_minutes_changes_nothing": TierStory(
            hardships.frozen_owner_for_long, lambda: Layout(nodes=5), is_long=True
        ),
    }


def tell_all(telling: Telling, names: Collection[str]) -> int:
    """Tells some stories at a time, each in a process of its own. Returns how many broke."""
    prepare()
    # A process forked beside the threads of another story could wait forever for one of their locks.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(_SIDE_BY_SIDE, context, max_tasks_per_child=1) as pool:
        return sum(pool.map(partial(_told_badly, telling), names))


def _told_badly(telling: Telling, name: str) -> bool:
    story = stories(telling.kills, telling.is_long)[name]
    try:
        layout = replace(story.layout(), lake=telling.lake)
        cluster = ProxiedCluster(telling.binary, telling.folder / name, layout)
        with cluster:
            try:
                told = story.tell(cluster, telling.seed)
            except (Broken, TimeoutError, StartError) as trouble:
                logs = "\n".join(node.log.read_text(errors="replace")[-1500:] for node in cluster.nodes.values())
                print(f"FAILED {name} (seed {telling.seed}): {type(trouble).__name__}: {trouble}\n{logs}", flush=True)
                return True
    except (CannotBeTold, EtcdUnavailable, LakeUnavailable) as reason:
        print(f"skipped: {name}: {reason}", flush=True)
        return False
    except StartError as trouble:
        print(f"FAILED {name} (seed {telling.seed}): {trouble}", flush=True)
        return True
    print(f"ok {name} (seed {telling.seed}): {told}", flush=True)
    return False
