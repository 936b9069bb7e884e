"""The stories of nodes that find blocks by a directory, each on a cluster of its own."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from . import directory_coherent, directory_faults, directory_readers
from .directory_cluster import DirectoryCluster, Settings
from .loopback import LoopbackStory
from .redis_servers import RedisCluster, SentinelRedis, SingleRedis

# Longer than the default: other stories take the processor meanwhile.
_TIMEOUT = "200ms"


def stories(is_long: bool = False) -> dict[str, LoopbackStory[DirectoryCluster]]:
    """Returns every story by its name."""
    # Crowds take the processor: an answer that comes late because of them is no fault of the directory.
    crowded = Settings(SingleRedis, block_size="64KiB", freshness="1h", timeout="1s")
    single = Settings(SingleRedis, block_size="256KiB", freshness="revalidate", timeout=_TIMEOUT)
    cluster = Settings(RedisCluster, block_size="256KiB", freshness="revalidate", timeout=_TIMEOUT)
    coherent = replace(single, freshness="coherent")
    coherent_in_cluster = replace(cluster, freshness="coherent")
    coherent_behind_sentinels = replace(coherent, redis=SentinelRedis)
    of_sentinels = [directory_coherent.a_failover_that_loses_writes, directory_coherent.a_failover_past_the_master]
    of_one = [directory_coherent.flushed, directory_coherent.frozen, directory_coherent.a_node_frozen]
    of_a_cluster = [directory_coherent.a_master_replaced]
    if is_long:
        of_one += [directory_coherent.killed, directory_coherent.slow, directory_coherent.full]
        of_one += [directory_coherent.a_node_killed]
        of_a_cluster += [directory_coherent.a_master_cut_off, directory_coherent.flushed]
    return {
        "a_directory_that_fails_costs_no_byte": LoopbackStory(directory_faults.one_redis, partial(_cluster, single)),
        "a_directory_in_a_redis_cluster_that_fails_costs_no_byte": LoopbackStory(
            partial(directory_faults.redis_cluster, is_long=is_long), partial(_cluster, cluster)
        ),
        "coherent_reads_fit_one_order_of_all_writes": LoopbackStory(
            partial(directory_coherent.tell, faults=of_one), partial(_cluster, coherent)
        ),
        "coherent_reads_fit_one_order_in_a_redis_cluster": LoopbackStory(
            partial(directory_coherent.tell, faults=of_a_cluster), partial(_cluster, coherent_in_cluster)
        ),
        "coherent_reads_fit_one_order_behind_sentinels": LoopbackStory(
            partial(directory_coherent.tell, faults=of_sentinels), partial(_cluster, coherent_behind_sentinels)
        ),
        "readers_cost_the_lake_one_read_each_block": LoopbackStory(
            partial(directory_readers.tell, is_long=is_long), partial(_cluster, crowded), is_alone=True
        ),
    }


def _cluster(settings: Settings, binary: Path, folder: Path, lake: str) -> DirectoryCluster:
    return DirectoryCluster(binary, folder, lake, settings)
