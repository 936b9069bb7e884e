"""The command line of programs that run stories or rows on clusters of their own: `--shoal BIN [NAME...] FOLDER`."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from pathlib import Path

from .cluster import LAKES


class CommandLine(argparse.ArgumentParser):
    """The arguments that these programs share. `names` holds the given names; `lake` is the default of `--lake`."""

    def __init__(
        self, program: str, description: str | None, noun: str, names: Collection[str], lake: str = "versitygw"
    ) -> None:
        super().__init__(prog=program, description=description)
        self._noun, self._names = noun, names
        self.add_argument("--shoal", type=Path, required=True, help="the binary")
        self.add_argument("--lake", choices=tuple(LAKES), default=lake, help=f"({lake})")
        self.add_argument("names", nargs="*", metavar=noun.upper(), help="some of: " + ", ".join(names))
        self.add_argument("folder", type=Path, help="scratch")

    def understood(self) -> argparse.Namespace:
        """Returns the arguments. Ends the program with an error if a name is unknown."""
        arguments = self.parse_args()
        unknown = set(arguments.names) - set(self._names)
        if unknown:
            self.error(f"no such {self._noun}: {', '.join(sorted(unknown))}")
        return arguments
