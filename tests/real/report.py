"""One line a check, and the counts at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Skip(Exception):
    """The check cannot be made here; the message says why."""


class Difference(AssertionError):
    """The node's answer is not the lake's."""


class Report:
    """Counts the checks that passed, failed or were skipped, and prints each as it ends."""

    def __init__(self) -> None:
        self._counts = {"PASS": 0, "FAIL": 0, "SKIP": 0}
        self._failed: list[str] = []

    @contextmanager
    def check(self, *names: str) -> Iterator[None]:
        """Runs its body as one check, and reports exceptions of the body instead of propagating them."""
        name = " ".join(names)
        started = time.monotonic()
        try:
            yield
        except Skip as reason:
            self._line("SKIP", name, str(reason))
        except Difference as difference:
            self._fail(name, str(difference))
        except Exception as error:
            self._fail(name, f"{type(error).__name__}: {error}")
        else:
            self._line("PASS", name, f"{time.monotonic() - started:.2f} s")

    def skip(self, name: str, reason: str) -> None:
        """Records a skipped check."""
        self._line("SKIP", name, reason)

    @property
    def has_failed(self) -> bool:
        """Returns whether a check has failed."""
        return bool(self._failed)

    def finish(self) -> int:
        """Prints the counts and returns the exit status."""
        for name in self._failed:
            print(f"failed: {name}")
        print(f"{self._counts['PASS']} passed, {self._counts['FAIL']} failed, {self._counts['SKIP']} skipped")
        return 1 if self._counts["FAIL"] or not self._counts["PASS"] else 0

    def _fail(self, name: str, detail: str) -> None:
        self._failed.append(name)
        self._line("FAIL", name, detail)

    def _line(self, outcome: str, name: str, detail: str) -> None:
        self._counts[outcome] += 1
        indented = detail.replace("\n", "\n     ")
        print(f"{outcome} {name}: {indented}")
        sys.stdout.flush()


def first_differences(expected: object, found: object, limit: int = 6) -> list[str]:
    """Returns the first few differences of two observations as `path: expected … found …`."""
    differences: list[str] = []

    def walk(path: str, left: object, right: object) -> None:
        if len(differences) >= limit or left == right:
            return
        if isinstance(left, dict) and isinstance(right, dict):
            for key in sorted({*left, *right}, key=lambda key: (key != "status", str(key))):
                walk(f"{path}.{key}", left.get(key, "(absent)"), right.get(key, "(absent)"))
        elif isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)) and len(left) == len(right):
            for index, (one, other) in enumerate(zip(left, right, strict=True)):
                walk(f"{path}[{index}]", one, other)
        else:
            differences.append(f"{path.lstrip('.')}: lake {brief(left)}, node {brief(right)}")

    walk("", expected, found)
    return differences


def brief(value: object) -> str:
    """Returns a value, shortened to fit a line."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:160]}… ({len(text)} characters)"
