"""Measures a Spark application whose listener announces its reads to nodes: `python3 -m bench.hints --shoal BIN`.

Three nodes are before a lake, behind a link that they meter. In each round the application runs without hints; with
hints for the first time; with hints again, when the nodes know its jobs; the same with all of the link for hints; and
with all inputs prefetched by hand. No input is in the cache before a run, except in the last case. Needs PYTHONPATH=
tests:. and Java.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from real.lakes import LakeUnavailable
from real.maven import JarsUnavailable
from real.processes import run
from real.scratch import scratch

from bench.hints.bed import EVENTS, INPUTS, MIB, SALES, Bed, first_hint
from bench.hints.others import Others, before_others, busy
from bench.hints.spark import MASTER, VERSIONS, Spark, Times
from bench.report import Spread, machine

NONE, FIRST, SECOND, WHOLE_LINK, BY_HAND = "none", "first", "second", "second-100", "by-hand"
CASES = {
    NONE: "none",
    FIRST: "first run",
    SECOND: "second run",
    WHOLE_LINK: "second, `link = 100`",
    BY_HAND: "by hand",
}
HINTED = (FIRST, SECOND, WHOLE_LINK)
# Cases that need the nodes of the case before them.
CHAINS = ((NONE,), (FIRST, SECOND, WHOLE_LINK), (BY_HAND,))
# A run begins when other work uses no more than this part of the processors, or after some tries.
QUIET, TRIES, BUSY_S = 0.2, 7, 3.0
# A run beside which other work used more than this part is repeated. Of all attempts the least disturbed counts.
DISTURBED = 0.45


@dataclass
class Run:
    """One run of the application."""

    case: str
    times: Times
    """The part of the processors' time that other work used beside the run."""
    others: float
    lake_bytes: dict[str, int]
    brought: int = 0
    used: int = 0
    wasted: int = 0
    early_s: float | None = None
    """For each input, the seconds between the event that first named it and the first read of it."""
    lead_s: dict[str, float] = field(default_factory=dict)
    """For each input, the bytes that clients read, and those of them for which they waited for the lake."""
    read: dict[str, tuple[int, int]] = field(default_factory=dict)
    hints: list[dict] = field(default_factory=list)

    @property
    def from_lake(self) -> int:
        """Returns the bytes that came from the lake."""
        return sum(self.lake_bytes.values())


def main() -> int:
    """Measures all rounds, and prints the tables."""
    parser = argparse.ArgumentParser(prog="bench.hints", description=__doc__)
    parser.add_argument("--shoal", type=Path, required=True, help="the binary")
    parser.add_argument("--rounds", type=int, default=4, help="interleaved rounds (4)")
    parser.add_argument("--bandwidth", default="100Mbit", help="[lake] bandwidth of all nodes together (100Mbit)")
    parser.add_argument("--link", type=int, default=50, help="[hints] link, in percent (50, which is the default)")
    parser.add_argument("--sales", type=int, default=3_000_000, help="rows of the first stage's input (3000000)")
    parser.add_argument("--events", type=int, default=11_000_000, help="rows of the second stage's input (11000000)")
    parser.add_argument("--attempts", type=int, default=3, help="runs beside much other work are repeated (3)")
    parser.add_argument("--priority", type=int, default=0, help="how much Linux prefers what is measured (0 to 20)")
    parser.add_argument("--results", type=Path, help="file to which the tables are appended")
    parser.add_argument("--runs", type=Path, help="file that gets all runs, as JSON lines")
    parser.add_argument("--keep", action="store_true", help="keep logs and data")
    options = parser.parse_args()
    try:
        with scratch("shoal-hints-", options.keep) as folder:
            binary = options.shoal.resolve()
            prefix = before_others(options.priority)
            with Bed(binary, folder, options.bandwidth, options.link, prefix) as bed:
                spark = Spark(folder / "spark", bed.account, prefix)
                spark.dataset(bed.lake.url, options.sales, options.events)
                sizes = bed.sizes()
                print(f"inputs: {sizes}", flush=True)
                rounds: list[dict[str, Run]] = []
                for number in range(options.rounds):
                    rounds.append(_round(bed, spark, number, options))
                    page = _page(options, sizes, rounds)
                    print(page, flush=True)
    except (LakeUnavailable, JarsUnavailable) as reason:
        print(f"skipped: {reason}")
        return 0
    if options.results:
        with options.results.open("a") as file:
            file.write(f"\n{page}")
    return 0


def _round(bed: Bed, spark: Spark, number: int, options: argparse.Namespace) -> dict[str, Run]:
    at = number % len(CHAINS)
    found: dict[str, Run] = {}
    for chain in (*CHAINS[at:], *CHAINS[:at]):
        for case in chain:
            attempts: list[Run] = []
            while not attempts or (attempts[-1].others > DISTURBED and len(attempts) < options.attempts):
                _prepare(bed, case)
                attempts.append(_measure(bed, spark, case))
                print(f"round {number + 1}, {CASES[case]}: {_told(attempts[-1])}", flush=True)
                if options.runs:
                    with options.runs.open("a") as file:
                        file.write(json.dumps({"round": number + 1, **asdict(attempts[-1])}) + "\n")
            found[case] = min(attempts, key=lambda attempt: attempt.others)
    return found


def _prepare(bed: Bed, case: str) -> None:
    if case in {SECOND, WHOLE_LINK}:
        bed.start_again(100 if case == WHOLE_LINK else None)
    else:
        bed.start_fresh()
    if case == BY_HAND:
        bed.prefetch()
    bed.remove_outputs()
    for _ in range(TRIES):
        if busy(BUSY_S) <= QUIET:
            break


def _measure(bed: Bed, spark: Spark, case: str) -> Run:
    others = Others(bed.pids())
    before, since = bed.lake_bytes(), time.time()
    has_hints = case in HINTED
    times = spark.application(bed.nodes[0].url, bed.nodes[-1].admin if has_hints else None)
    others_share = others.share()
    hints = bed.hints(since)
    lake = {name: value - before.get(name, 0) for name, value in bed.lake_bytes().items()}
    gets = bed.gets(since)
    found = Run(case, times, others_share, lake, early_s=bed.early_s(), hints=hints)
    for hint in hints:
        found.brought += hint["brought_bytes"]
        found.used += hint["used_bytes"]
        found.wasted += hint["wasted_bytes"]
    for name in (*INPUTS, "tmp/joined/"):
        of_input = [get for get in gets if get.key.startswith(name)]
        found.read[name] = (sum(get.bytes for get in of_input), sum(get.lake_bytes for get in of_input))
        if of_input and (hinted := first_hint(hints, name)) is not None:
            found.lead_s[name] = min(get.at for get in of_input) - hinted
    return found


def _told(measured: Run) -> str:
    times = measured.times
    said = [
        f"stages {times.stage_1:.1f} s and {times.stage_2:.1f} s, whole {times.whole:.1f} s",
        f"from the lake {measured.from_lake / MIB:.0f} MiB {measured.lake_bytes}",
        f"brought {measured.brought / MIB:.0f}, used {measured.used / MIB:.0f}, wasted {measured.wasted / MIB:.0f} MiB",
        f"early {measured.early_s}, lead {measured.lead_s}, read {measured.read}, others {measured.others:.0%}",
    ]
    return "; ".join(said)


def _page(options: argparse.Namespace, sizes: dict[str, int], rounds: list[dict[str, Run]]) -> str:
    version = run([options.shoal.resolve(), "--version"]).strip()
    others = Spread.of([each.others * 100 for of_round in rounds for each in of_round.values()])
    inputs = ", ".join(f"{name} {size / MIB:.0f} MiB" for name, size in sizes.items())
    lines = [
        f"## {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "",
        f"{machine()}. {version}, MinIO, {VERSIONS}, `{MASTER}`. A link of {options.bandwidth}, {options.link}% of it "
        f"for hints. {inputs}. {len(rounds)} interleaved rounds. Other work used {others}% of the processors beside "
        "runs.",
        "",
        "| hints | stage 1, s | stage 2, s | application, s | stage 2 to none | application to none |",
        "|---|---|---|---|---|---|",
        *(_times_row(case, rounds) for case in CASES),
        "",
        "| hints | from the lake, MiB | more than none | of brought, % |",
        "|---|---|---|---|",
        *(_lake_row(case, rounds) for case in CASES),
        "",
        "| hints | brought, MiB | used | wasted | of brought, % |",
        "|---|---|---|---|---|",
        *(_bytes_row(case, rounds) for case in HINTED),
        "",
        "| hints | warmed, % | early, s | lead of sales, s | lead of events, s |",
        "|---|---|---|---|---|",
        *(_warmth_row(case, rounds) for case in HINTED),
        "",
    ]
    return "\n".join(lines)


def _times_row(case: str, rounds: list[dict[str, Run]]) -> str:
    def of(value: Callable[[Times], float]) -> str:
        return _spread(value(each[case].times) for each in rounds)

    def ratio(value: Callable[[Times], float]) -> str:
        return str(Spread.of([value(each[case].times) / value(each[NONE].times) for each in rounds]))

    cells = [of(lambda times: times.stage_1), of(lambda times: times.stage_2), of(lambda times: times.whole)]
    cells += [ratio(lambda times: times.stage_2), ratio(lambda times: times.whole)]
    return f"| {CASES[case]} | {' | '.join(cells)} |"


def _lake_row(case: str, rounds: list[dict[str, Run]]) -> str:
    more = [each[case].from_lake - each[NONE].from_lake for each in rounds]
    cells = [_spread(each[case].from_lake / MIB for each in rounds), "", ""]
    if case in HINTED:
        of_brought = _spread(one / each[case].brought * 100 for one, each in zip(more, rounds, strict=True))
        cells[1:] = [_spread(one / MIB for one in more), of_brought]
    return f"| {CASES[case]} | {' | '.join(cells)} |"


def _bytes_row(case: str, rounds: list[dict[str, Run]]) -> str:
    runs = [each[case] for each in rounds]
    cells = [
        _spread(each.brought / MIB for each in runs),
        _spread(each.used / MIB for each in runs),
        _spread(each.wasted / MIB for each in runs),
        _spread(each.wasted / each.brought * 100 for each in runs),
    ]
    return f"| {CASES[case]} | {' | '.join(cells)} |"


def _warmth_row(case: str, rounds: list[dict[str, Run]]) -> str:
    runs = [each[case] for each in rounds]
    cells = [
        # Of what a run without hints takes from the lake.
        _spread(each[case].used / each[NONE].from_lake * 100 for each in rounds),
        _spread(each.early_s for each in runs if each.early_s is not None),
        *(_spread(each.lead_s[name] for each in runs if name in each.lead_s) for name in (SALES, EVENTS)),
    ]
    return f"| {CASES[case]} | {' | '.join(cells)} |"


def _spread(values: Iterable[float]) -> str:
    found = list(values)
    if not found:
        return "–"
    spread = Spread.of(found)
    return f"{spread.median:.1f} ({spread.lowest:.1f}–{spread.highest:.1f})"


if __name__ == "__main__":
    sys.exit(main())
