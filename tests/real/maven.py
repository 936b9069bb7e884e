"""Jars of Maven Central: the versions and sums that a list names, kept in the cache folder."""

from __future__ import annotations

import fcntl
import hashlib
import http.client
import shutil
import urllib.request
from pathlib import Path

from .lakes import cache_dir
from .processes import tried_again

CENTRAL = "https://repo1.maven.org/maven2"


class JarsUnavailable(RuntimeError):
    """No Java, or jars that cannot be had; the message says so, for the line that reports the skip."""


class WrongSum(RuntimeError):
    """A jar is another one than the one that was tested. That is no reason to skip anything."""


def program(name: str) -> str:
    """Returns the path of a program of Java."""
    found = shutil.which(name)
    if found is None:
        raise JarsUnavailable(f"{name} is not installed (Debian: openjdk-17-jdk-headless)")
    return found


def fetched(listed: Path) -> list[Path]:
    """Returns the jars of a list: lines with the SHA-256 and the path of each, and comments."""
    lines = (line.split() for line in listed.read_text().splitlines() if not line.startswith("#"))
    folder = cache_dir() / "jars"
    folder.mkdir(exist_ok=True)
    # Several suites may want a jar at the same time: one downloads it.
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return [_fetch(path, sum_expected, folder) for sum_expected, path in lines]


def _fetch(path: str, sum_expected: str, folder: Path) -> Path:
    """Downloads a jar once, and returns its path."""
    jar = folder / Path(path).name
    if jar.exists() and _sum(jar) == sum_expected:
        return jar
    return tried_again(lambda: _download(path, sum_expected, jar), JarsUnavailable, WrongSum)


def _download(path: str, sum_expected: str, jar: Path) -> Path:
    """Removes the file and raises if its sum is another one, as it is when the connection ends early."""
    partial = jar.with_suffix(".partial")
    try:
        with urllib.request.urlopen(f"{CENTRAL}/{path}", timeout=60) as answer, partial.open("wb") as file:
            shutil.copyfileobj(answer, file)
    except (OSError, http.client.HTTPException) as error:
        raise JarsUnavailable(f"{CENTRAL}/{path} cannot be had: {error}") from error
    if (found := _sum(partial)) != sum_expected:
        partial.unlink()
        raise WrongSum(f"{CENTRAL}/{path} has the SHA-256 {found} instead of {sum_expected}")
    return partial.rename(jar)


def _sum(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
