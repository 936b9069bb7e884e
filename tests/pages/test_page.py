"""What counts as a command of a page, and as a line that it shows."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path

from .page import Shown, commands, missing


def _commands(text: str) -> list[Shown]:
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.md"
        page.write_text(text)
        return commands(page)


class Pages(unittest.TestCase):
    """Pages as they are written."""

    def test_a_command_goes_on_behind_a_backslash_and_has_the_lines_below_it(self) -> None:
        """Blocks in other languages have no commands."""
        found = _commands("```sh\n$ no\n```\n```console\n$ a \\\n    b\nshown\n$ c\n```\n")
        self.assertEqual([(each.command, each.output) for each in found], [("a \\\n    b", ["shown"]), ("c", [])])

    def test_a_comment_says_why_a_block_or_a_command_of_it_is_not_typed(self) -> None:
        """It is for the next block only."""
        block = "```console\n$ a 1\n$ b\n```\n"
        of_one = _commands(f"<!-- not typed (a): no\na -->\n\n{block}\n{block}")
        self.assertEqual([each.untyped for each in of_one], ["no a", "", "", ""])
        of_block = _commands(f"<!-- not typed: why -->\n{block}{block}")
        self.assertEqual([each.untyped for each in of_block], ["why", "why", "", ""])
        of_page = _commands(f"<!-- nothing is typed: all -->\n{block}{block}")
        self.assertEqual([each.untyped for each in of_page], ["all"] * 4)

    def test_a_comment_that_fits_no_command_is_refused(self) -> None:
        """The command that it was for may be gone."""
        with self.assertRaises(ValueError):
            _commands("<!-- not typed (c): why -->\n```console\n$ a\n```\n")


class Lines(unittest.TestCase):
    """Lines that a page shows, and lines that were printed."""

    def test_numbers_times_ids_and_nodes_may_differ_and_nothing_else(self) -> None:
        """Columns are as wide as what is in them."""
        shown = ["24.2 GiB  100%  n0, n1  1200  dt=2026-11-29/", "plan 01JDC0V5T2XW4Y8M6R00000000 runs since 8.2s"]
        same = ["3 KiB 0%  node-2 6  dt=2026-12-01/", "other", "plan 01M8Q3EMQECCHTZA1WNF0FXAT2  runs since 9ms"]
        self.assertIsNone(missing(shown, same))
        self.assertEqual(missing(shown, [same[0], "plan 01M8Q3EMQECCHTZA1WNF0FXAT2 ran since 9ms"]), shown[1])

    def test_lines_come_in_the_order_of_the_page(self) -> None:
        """An ellipsis ends a line that is longer."""
        self.assertIsNone(missing(["a", "...", "b …"], ["a", "x", "b and more"]))
        self.assertEqual(missing(["b", "a"], ["a", "b"]), "a")
        self.assertEqual(missing(["b"], ["b and more"]), "b")


if __name__ == "__main__":
    unittest.main()
