"""The clients: programs that know nothing but their environment, and what each needs to run."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path

from real import maven
from real.lakes import cache_dir
from real.processes import run
from real.report import Report, Skip

_HERE = Path(__file__).parent
# Of a Java that does not run for long.
_FAST_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class Form(Enum):
    """How a client gets its key."""

    CONTAINER = "endpoint of credentials"
    STS = "STS"
    SESSION = "session token"
    KEY = "lasting key"


@dataclass(frozen=True)
class Client:
    """A client that this machine can run; the arguments of its command are a bucket and two keys in it.

    It reads the object of the first key, and writes three bytes or a table of three rows to the second. Then it prints
    the bytes of the first, and how many bytes or rows it reads of the second.
    """

    name: str
    command: Sequence[str | Path]
    forms: frozenset[Form]


@dataclass(frozen=True)
class _Kind:
    name: str
    """Returns the command for a Python; raises `Skip` where this machine lacks what the client needs."""
    command: Callable[[Path], Sequence[str | Path]]
    """The forms that the client cannot use by its own nature."""
    lacks: frozenset[Form] = frozenset()


def available(report: Report, python: Path) -> Iterator[Client]:
    """Yields the clients that this machine can run, and reports the others. `python` has the packages of clients."""
    for kind in _KINDS:
        try:
            yield Client(kind.name, kind.command(python), frozenset(Form) - kind.lacks)
        except Skip as reason:
            report.skip(kind.name, str(reason))


def _program(name: str, python: Path) -> Sequence[str | Path]:
    return python, _HERE / "programs" / f"{name}.py"


def _go(_python: Path) -> Sequence[str | Path]:
    go, folder, binary = shutil.which("go"), _HERE / "go", cache_dir() / "bin" / "sdk-go"
    if go is None:
        raise Skip("go is not installed")
    try:
        run([go, "-C", folder, "mod", "download"])
    except RuntimeError as error:
        raise Skip(f"its modules cannot be had: {error}") from error
    run([go, "-C", folder, "build", "-o", binary, "."], timeout_s=1200)
    return (binary,)


def _java(name: str, _python: Path) -> Sequence[str | Path]:
    try:
        # Java runs a source file only where it has a compiler, too.
        java, _ = maven.program("java"), maven.program("javac")
        jars = maven.fetched(_HERE / "java" / "jars.txt")
    except maven.JarsUnavailable as reason:
        raise Skip(str(reason)) from reason
    return java, *_FAST_START, "-cp", ":".join(map(str, jars)), _HERE / "java" / f"{name}.java"


# The SDK for C++ asks AWS's own STS, whatever the environment says.
_NO_STS = frozenset({Form.STS})

_KINDS = (
    _Kind("boto3", partial(_program, "boto3_sdk")),
    _Kind("aws-cli", partial(_program, "aws_cli")),
    _Kind("polars", partial(_program, "polars_scan")),
    _Kind("delta-rs", partial(_program, "delta_rs")),
    _Kind("duckdb", partial(_program, "duckdb_httpfs"), _NO_STS),
    _Kind("pyarrow", partial(_program, "pyarrow_fs"), _NO_STS),
    _Kind("go-v2", _go),
    _Kind("java-v2", partial(_java, "Sdk")),
    _Kind("s3a", partial(_java, "S3a")),
)
