"""Tells the stories of nodes that fail: `python -m net --shoal BIN [STORY...] FOLDER`; see `tests/net/run.sh`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from real.etcd import EtcdUnavailable
from real.lakes import LakeUnavailable

from . import write_back
from .cluster import Cluster, Shape
from .command_line import CommandLine
from .fabric import Rates
from .loopback_stories import Telling, stories, tell_all
from .stories import FAULTS, VICTIM, Fault, failure, tell

# Slow enough that reads are under way whenever something happens, fast enough for a debug build.
_RATES = Rates(client=100, node=100, rack=100, lake=50)
_RACKS = 3
# A little more than the store may fill.
_DISK_BYTES = 72 << 20


@dataclass(frozen=True)
class Story:
    """A story about a cluster, and how long a write stays in its tier, if it has one. `tell` returns one line."""

    tell: Callable[[Cluster, int], str]
    written_back: str = ""


def _reads(fault: Fault, cluster: Cluster, seed: int) -> str:
    outcomes = tell(fault, cluster, seed)
    healed = sum(outcome.healed.total() for outcome in outcomes)
    return f"{sum(outcome.reads for outcome in outcomes)} reads, {healed} of them at the second try"


STORIES = {name: Story(partial(_reads, fault)) for name, fault in FAULTS.items()} | {
    "no_write_that_was_acknowledged_is_lost_whatever_fails": Story(write_back.tell, written_back="1s"),
}


def main() -> int:
    """Tells every story on a cluster of its own."""
    arguments = _parse()
    on_loopback = stories()
    names = arguments.names or [
        *STORIES,
        *(name for name, story in on_loopback.items() if arguments.long or not story.is_long),
    ]
    failures = 0
    for number, name in enumerate(name for name in names if name in STORIES):
        try:
            failures += _told_badly(arguments, name, arguments.folder / str(number))
        except LakeUnavailable as reason:
            print(f"skipped: {reason}")
            return 0
        except EtcdUnavailable as reason:
            print(f"skipped: {name}: {reason}")
    telling = Telling(
        binary=arguments.shoal.resolve(),
        folder=arguments.folder,
        lake=arguments.lake,
        seed=arguments.seed,
        kills=arguments.kills,
        freezes=arguments.freezes,
        is_long=arguments.long,
    )
    failures += tell_all(telling, [name for name in names if name in on_loopback])
    print(f"{failures} of these stories broke" if failures else "every story ended well")
    return 1 if failures else 0


def _parse() -> argparse.Namespace:
    parser = CommandLine("tests/net/run.sh", __doc__, "story", [*STORIES, *stories()])
    parser.add_argument("--seed", type=int, default=1, help="of all that is left to chance (1)")
    parser.add_argument("--kills", type=int, default=0, help="so many nodes are killed one after the other (10)")
    parser.add_argument("--freezes", type=int, default=0, help="so many nodes freeze in the middle of a change (12)")
    parser.add_argument("--long", action="store_true", help="every crash point, and stories that last for minutes")
    return parser.understood()


def _told_badly(arguments: argparse.Namespace, name: str, folder: Path) -> bool:
    story = STORIES[name]
    shape = Shape(
        _RACKS,
        _RATES,
        capacity="64MiB",
        block_size="256KiB",
        lake=arguments.lake,
        disk=(VICTIM, _DISK_BYTES),
        written_back=story.written_back,
    )
    logs = ""
    try:
        with Cluster(arguments.shoal.resolve(), folder, shape) as cluster:
            try:
                told = story.tell(cluster, arguments.seed)
            except Exception:
                logs = "\n".join(node.log.read_text(errors="replace")[-1500:] for node in cluster.nodes.values())
                raise
    except (LakeUnavailable, EtcdUnavailable):
        raise
    except Exception as trouble:
        print(f"{failure(name, arguments.seed, trouble)}{logs}", flush=True)
        return True
    print(f"ok {name} (seed {arguments.seed}): {told}", flush=True)
    return False


if __name__ == "__main__":
    sys.exit(main())
