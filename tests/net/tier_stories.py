"""The stories of the write tier that need no network of racks, each on a cluster of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from . import crash_points, freezes, full_disk, hardships, keeping, kills, packing, registry
from .loopback import LoopbackStory
from .proxied import Layout, ProxiedCluster

# The number of crash points in a run that is not long.
_POINTS = 36
_KILLS = 10
_FAULTS = 20
# All but one of the nodes freeze at a time, twice.
_NODES, _FREEZES = 7, 12
# The default of `[lake] answer_timeout`.
_STALL_S = 20
# A node with this timeout gives up a late lake before the lake answers.
_IMPATIENT = {"SHOAL_LAKE_WRITE_TIMEOUT": "5s"}


def stories(kills_asked: int = 0, freezes_asked: int = 0, is_long: bool = False) -> dict[str, LoopbackStory[Any]]:
    """Returns every story by its name, the longest ones first."""
    points = 0 if is_long else _POINTS
    frozen = partial(freezes.at_every_stage, freezes=freezes_asked or _FREEZES)
    late = Layout(nodes=2, stall_s=16, environment=dict.fromkeys((1, 2), _IMPATIENT))
    return {
        "maps_of_packs_are_kept_and_ended_and_rebuilt_whatever_fails": _story(
            partial(keeping.tell, faults=kills_asked or _FAULTS),
            lambda: Layout(keeping.NODES, age="1s", is_packed=True),
        ),
        "a_lake_that_commits_half_a_minute_late_brings_nothing_back": _story(hardships.late_lake, lambda: late),
        "nodes_that_are_killed_one_after_the_other_lose_nothing": _story(
            partial(kills.tell, kills=kills_asked or _KILLS), lambda: Layout(kills.NODES, age="1s")
        ),
        "nodes_that_pack_lose_nothing_to_any_faults": _story(
            partial(packing.tell, faults=kills_asked or _FAULTS),
            lambda: Layout(kills.NODES, age="1s", is_packed=True),
        ),
        "a_node_may_die_at_any_request_of_any_operation": _story(partial(crash_points.kill_at_each, at_most=points)),
        "requests_and_answers_that_are_lost_cost_no_write": _story(partial(crash_points.lose_each, at_most=points)),
        "an_etcd_without_leader_or_majority_costs_no_write": _story(
            hardships.etcd_without_majority, lambda: Layout(members=3, age="1s")
        ),
        "a_full_registry_costs_no_write": _story(
            hardships.full_registry, lambda: Layout(quota_bytes=16 << 20, age="1s")
        ),
        "clocks_that_are_minutes_apart_cost_no_write": _story(
            hardships.wrong_clocks, lambda: Layout(age="1s", environment=hardships.clocks())
        ),
        "an_owner_that_wakes_up_in_mid_flush_changes_nothing": _story(hardships.frozen_owner, lambda: Layout(nodes=5)),
        "a_registry_that_is_nearly_full_takes_nothing_new_and_loses_nothing": _story(
            registry.nearly_full, lambda: Layout(nodes=2, quota_bytes=registry.QUOTA_BYTES, age="1h")
        ),
        "a_node_that_was_killed_writes_back_as_soon_as_it_serves": _story(
            registry.takeover, lambda: Layout(nodes=2, age="1h")
        ),
        "an_etcd_that_is_lost_with_its_disks_is_recovered_from_receipts": _story(
            registry.lost, lambda: Layout(members=3, age="2s", has_receipts=True)
        ),
        "a_full_disk_below_a_tier_costs_no_write": LoopbackStory(full_disk.tell, full_disk.FolderTierCluster),
        "a_node_may_freeze_at_any_stage_of_a_change": _story(frozen, lambda: Layout(_NODES)),
        "a_node_may_freeze_at_any_stage_with_the_default_fence": _story(
            frozen, lambda: Layout(_NODES, stall_s=_STALL_S), is_long=True
        ),
        "two_owners_of_a_name_that_freeze_at_once_change_nothing": _story(freezes.two_owners),
        "a_full_tier_costs_no_write": _story(hardships.full_tier, lambda: Layout(capacity="2MiB")),
        "an_owner_that_wakes_up_after_five_minutes_changes_nothing": _story(
            hardships.frozen_owner_for_long, lambda: Layout(nodes=5), is_long=True
        ),
    }


def _story(
    tell: Callable[[ProxiedCluster, int], str], layout: Callable[[], Layout] = Layout, is_long: bool = False
) -> LoopbackStory[ProxiedCluster]:
    # The layout is made where the story is told: it may say that the machine cannot tell it.
    def cluster(binary: Path, folder: Path, lake: str) -> ProxiedCluster:
        return ProxiedCluster(binary, folder, lake, layout())

    return LoopbackStory(tell, cluster, is_long)
