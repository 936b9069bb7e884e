"""The commands of a page: what is typed, what the page shows for it, and why some are not typed here.

A comment before a block of `console` gives the reason why it is not typed: `<!-- not typed: REASON -->`, or
`<!-- not typed (BEGINNING): REASON -->` for its commands that begin so. In front of the first block,
`<!-- nothing is typed: REASON -->` is for the whole page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_COMMENT = re.compile(r"<!-- (not typed(?: \(([^)]*)\))?|nothing is typed): (.*?) -->", re.DOTALL)
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# What differs from run to run and from machine to machine: ids, nodes, numbers with their units, and times.
_VARYING = (
    (re.compile(r"\b[0-9A-HJKMNP-TV-Z]{26}\b"), "ID"),
    (re.compile(r"\bn(ode-)?\d+(, n(ode-)?\d+)*\b"), "NODES"),
    (re.compile(r"\d[\d.,:]*( ?([KMGT]i?B|B|[kMG]bit/s)\b|%|ms\b|[smhd]\b)?"), "N"),
)
# A page leaves out the end of a long line.
_GOES_ON = "…"


@dataclass
class Shown:
    """A command, the lines that the page has below it, and the reason why it is not typed, if there is one."""

    command: str
    output: list[str] = field(default_factory=list)
    untyped: str = ""


def commands(page: Path) -> list[Shown]:
    """Returns the commands of the blocks of `console`, in order. A line that ends in a backslash goes on.

    Raises `ValueError` if a comment fits no command: its reason may be over.
    """
    text = page.read_text()
    found: list[Shown] = []
    of_page = ""
    last = 0
    for block in _BLOCK.finditer(text):
        comments = list(_COMMENT.finditer(text, last, block.start()))
        of_page = of_page or next((_one_line(each[3]) for each in comments if each[1].startswith("nothing")), "")
        reasons = {each[2] or "": _one_line(each[3]) for each in comments}
        last = block.end()
        of_block = list(_of_block(block[2].splitlines())) if block[1] == "console" else []
        for shown in of_block:
            shown.untyped = of_page or next(
                (why for start, why in reasons.items() if shown.command.startswith(start)), ""
            )
        if not of_page and (unused := [start for start in reasons if not _begins(of_block, start)]):
            raise ValueError(f"{page.name}: no command of the block below it begins with {unused}")
        found += of_block
    return found


def _begins(of_block: Sequence[Shown], start: str) -> bool:
    return any(shown.command.startswith(start) for shown in of_block)


def missing(shown: Sequence[str], printed: Sequence[str]) -> str | None:
    """Returns the first line of a page that was not printed, behind the lines before it. Others may be between."""
    rest = iter(printed)
    for line in shown:
        if line.strip() in ("", "..."):
            continue
        if not any(_is(line, other) for other in rest):
            return line
    return None


def _is(shown: str, printed: str) -> bool:
    head, goes_on, _ = shown.partition(_GOES_ON)
    one, other = _plain(head if goes_on else shown), _plain(printed)
    return other.startswith(one) if goes_on else one == other


def _plain(line: str) -> str:
    for pattern, word in _VARYING:
        line = pattern.sub(word, line)
    return " ".join(line.split())


def _of_block(lines: Sequence[str]) -> Iterator[Shown]:
    shown: Shown | None = None
    for line in lines:
        if shown and shown.command.endswith("\\"):
            shown.command += "\n" + line
        elif line.startswith(("$ ", "# ")):
            if shown:
                yield shown
            shown = Shown(line[2:])
        elif shown:
            shown.output.append(line)
    if shown:
        yield shown


def _one_line(text: str) -> str:
    return " ".join(text.split())
