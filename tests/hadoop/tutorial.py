"""Runs the tutorial about stages that start warm: each command of the page, and what the page shows for it.

The nodes of the page listen on their usual ports. Here they take free ones, and the files of the tutorial are copied
with these. The jars that the page has Spark download are downloaded once, and compared with their sums.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from real import maven
from real.processes import Process
from real.report import Difference

from .spark import FAST_START

ROOT = Path(__file__).parents[2]
TUTORIALS = ROOT / "docs" / "tutorials"
# What openlineage-spark and hadoop-aws need besides Spark.
JARS = ROOT / "bench" / "hints" / "jars.txt"
NAME = "warm-stages"
SERVES = "shoal dev"
COMMAND_S = 600
# What differs from run to run: times, and ids of tasks.
_VARYING = ((re.compile(r"\b\d+(\.\d)?s\b|\b\d+m\b"), "TIME"), (re.compile(r"\b[0-9A-HJKMNP-TV-Z]{26}\b"), "ID"))
_PACKAGES = re.compile(r"^spark\.jars\.packages\s+(\S+)$", re.MULTILINE)
_ROW = re.compile(r"<text [^>]*font-size[^>]*>([^<]*)</text>")
# Of the hints of a stage that begins, some bytes come for it and some for its hint, as it happens.
_AHEAD = re.compile(r", stage [1-9]: ")


@dataclass
class Shown:
    """A command of a page, and the lines that the page shows below it."""

    command: str
    output: list[str] = field(default_factory=list)


def commands(page: str) -> list[Shown]:
    """Returns the commands in the blocks of `console` of a page. A line that ends in a backslash goes on."""
    found: list[Shown] = []
    is_shown = goes_on = False
    for line in page.splitlines():
        if line.startswith("```"):
            is_shown = line == "```console"
        elif is_shown and goes_on:
            found[-1].command += "\n" + line
            goes_on = line.endswith("\\")
        elif is_shown and line.startswith("$ "):
            found.append(Shown(line[2:]))
            goes_on = line.endswith("\\")
        elif is_shown:
            found[-1].output.append(line)
    return found


def matches(shown: Sequence[str], printed: Sequence[str]) -> bool:
    """Returns whether the lines are those that are shown; `...` stands for any number of them."""
    if not shown:
        return not printed
    if shown[0].strip() == "...":
        return any(matches(shown[1:], printed[skipped:]) for skipped in range(len(printed) + 1))
    return bool(printed) and plain(shown[0]) == plain(printed[0]) and matches(shown[1:], printed[1:])


def plain(line: str) -> str:
    """Returns a line without what differs from run to run. Columns are as wide as the times in them."""
    for pattern, word in _VARYING:
        line = pattern.sub(word, line)
    return " ".join(line.split())


def prove(binary: Path, folder: Path) -> None:
    """Runs the page in a folder. Raises `Difference` where the page says something else."""
    shown = commands((TUTORIALS / f"{NAME}.md").read_text())
    work = folder / "tutorial"
    copied = work / "repository" / "docs" / "tutorials"
    shutil.copytree(TUTORIALS, copied)
    environment = {
        "PATH": f"{binary.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(work),
        "REPOSITORY": str(work / "repository"),
        "NO_COLOR": "1",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        # The environment has the package already; another version than that of the page is a fault.
        "PIP_NO_INDEX": "1",
    }
    nodes: Process | None = None
    addresses: dict[str, str] = {}
    try:
        for one in shown:
            if one.command.startswith(SERVES):
                nodes = _serve(one, binary, work)
                addresses = _addresses(nodes.log.read_text())
                environment["SHOAL_ADMIN_URL"] = addresses["http://127.0.0.1:9100"]
                _adapt(copied / NAME / "spark.conf", addresses)
            else:
                print(f"     $ {one.command}", flush=True)
                printed = _output(one.command, work, environment)
                for usual, here in addresses.items():
                    printed = printed.replace(here, usual)
                # For `--keep`: what the page may show.
                with (work / "printed.log").open("a") as kept:
                    kept.write(f"$ {one.command}\n{printed}")
                _require(one, printed)
        _require_the_same_rows((copied / f"{NAME}.svg").read_text(), (work / "hints.svg").read_text())
        _require_warmth(json.loads(_output("shoal hints --json", work, environment)))
    finally:
        if nodes:
            nodes.stop()


def _serve(shown: Shown, binary: Path, work: Path) -> Process:
    """Starts the nodes, and returns once they have printed what the page shows."""
    ports = [part for name in ("s3", "admin", "peer", "lake") for part in (f"--{name}-port", "0")]
    nodes = Process([binary, *shown.command.split()[1:], *ports], work / "dev.log")
    nodes.wait_until(lambda: "ready" in nodes.log.read_text().splitlines(), timeout_s=60)
    _require(shown, nodes.log.read_text())
    return nodes


def _addresses(printed: str) -> dict[str, str]:
    """Returns where the first node is, by the addresses that the page has for it."""
    found = re.search(r"^ *node-0 +(\S+) +admin (\S+)$", printed, re.MULTILINE)
    if found is None:
        raise Difference(f"`{SERVES}` does not say where node-0 is:\n{printed}")
    return {"http://127.0.0.1:9000": found[1], "http://127.0.0.1:9100": found[2]}


def _adapt(settings: Path, addresses: Mapping[str, str]) -> None:
    """Gives Spark the addresses of this run, jars that were downloaded before, and a Java that starts fast."""
    text = settings.read_text()
    for usual, here in addresses.items():
        if usual not in text:
            raise Difference(f"{settings.name} does not name {usual}")
        text = text.replace(usual, here)
    packages = _PACKAGES.search(text)
    if packages is None:
        raise Difference(f"{settings.name} has no spark.jars.packages")
    fetched = maven.fetched(JARS)
    known = {jar.name for jar in fetched}
    for package in packages[1].split(","):
        _, name, version = package.split(":")
        if f"{name}-{version}.jar" not in known:
            raise Difference(f"{JARS} lacks {package}")
    # The last one of two lines with one name counts.
    lines = [
        "spark.jars.packages",
        f"spark.jars {','.join(map(str, fetched))}",
        f"spark.driver.extraJavaOptions {' '.join(FAST_START)}",
    ]
    settings.write_text("\n".join([text, *lines, ""]))


def _output(command: str, work: Path, environment: Mapping[str, str]) -> str:
    done = subprocess.run(
        ["sh", "-c", f"exec 2>&1; {command}"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        cwd=work,
        env=environment,
        timeout=COMMAND_S,
        check=False,
    )
    if done.returncode:
        raise Difference(f"{command}\nended with status {done.returncode}:\n{done.stdout[-3000:]}")
    return done.stdout


def _require(shown: Shown, printed: str) -> None:
    if not matches(shown.output, printed.splitlines()):
        page = "\n".join(shown.output)
        raise Difference(f"{shown.command}\nprinted\n{printed[-4000:]}\nand the page has\n{page}")


def _require_the_same_rows(kept: str, drawn: str) -> None:
    """Compares the rows of hints ahead in the picture of the page with those that its command has drawn now."""
    rows = [[row for row in _ROW.findall(picture) if _AHEAD.search(row)] for picture in (kept, drawn)]
    if rows[0] != rows[1] or not rows[0]:
        raise Difference(f"the picture of the page has the rows\n{rows[0]}\nand its command has drawn\n{rows[1]}")


def _require_warmth(listed: Mapping[str, list[dict]]) -> None:
    """Checks that the inputs of the second stage were all there when that stage began, and that it used them."""

    def latest(stage: int) -> dict:
        facts = ((hint, hint["task"]["hint"]) for hint in listed["hints"])
        of_stage = (hint for hint, of in facts if of["reader"]["name"].endswith(".report") and of["stage"] == stage)
        return next(of_stage, {})

    # The stage begins with a hint of its own. The start of the application has announced it as the second one.
    begun, ahead = latest(0), latest(2)
    if not begun or not ahead:
        raise Difference(f"the second stage was not announced: {listed}")
    inputs = ahead["task"]["hint"]["inputs"]
    if inputs != ["s3://demo/events"] or ahead["brought"] is None or ahead["brought"] > begun["task"]["created"]:
        raise Difference(f"the events were not there when the second stage began: {ahead}\n{begun}")
    if not ahead["used_bytes"] == ahead["brought_bytes"] == ahead["task"]["bytes"]["total"] > 0:
        raise Difference(f"the second stage did not use all that came before it: {ahead}")
