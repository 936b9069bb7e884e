"""Hadoop's own tests of S3A: those that pass at the lake must pass at the nodes."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from real import maven
from real.lakes import REGION, Account, cache_dir
from real.processes import run

from . import jars, spark

_CONTRACT = "org.apache.hadoop.fs.contract.s3a.ITestS3AContract"
_S3A = "org.apache.hadoop.fs.s3a"
CLASSES = tuple(f"{_CONTRACT}{name}" for name in ("Create", "Delete", "GetFileStatus", "Mkdir", "Open", "Rename"))
# These take minutes more.
MORE_CLASSES = (
    *(f"{_CONTRACT}{name}" for name in ("Etag", "MultipartUploader", "RootDir", "Seek", "Unbuffer")),
    f"{_S3A}.ITestS3AMiscOperations",
    f"{_S3A}.commit.ITestCommitOperations",
    f"{_S3A}.commit.magic.ITestMagicCommitProtocol",
    f"{_S3A}.commit.staging.integration.ITestDirectoryCommitProtocol",
    f"{_S3A}.commit.staging.integration.ITestPartitionedCommitProtocol",
    f"{_S3A}.commit.staging.integration.ITestStagingCommitProtocol",
)
RESOURCES = ("core-site.xml", "contract/s3a.xml")
TIMEOUT_S = 3600

PROPERTY = "<property><name>{name}</name><value>{value}</value></property>\n"


@dataclass(frozen=True)
class Tests:
    """The compiled tests and their libraries."""

    classes: Path
    libraries: Sequence[Path]

    def run(self, names: Sequence[str], folder: Path, url: str, account: Account, bucket: str) -> dict[str, str]:
        """Runs classes of tests, or single tests (`class#method`). Returns the outcome of each test by its name."""
        work = folder / "work"
        work.mkdir(parents=True)
        configuration = folder / "configuration"
        configuration.mkdir()
        # Hadoop's own file includes the other from its folder.
        shutil.copy(self.classes / "core-site.xml", configuration)
        (configuration / "auth-keys.xml").write_text(settings(url, account, bucket))
        (configuration / "log4j.properties").write_text("log4j.rootLogger=OFF\n")
        command = [
            *(
                maven.program("java"),
                *spark.FAST_START,
                "-Xmx1g",
                f"-Dtest.build.data={work / 'data'}",
                f"-Dhadoop.tmp.dir={work / 'tmp'}",
            ),
            *("-cp", ":".join(map(str, (configuration, self.classes, *self.libraries)))),
            *("org.junit.platform.console.ConsoleLauncher", "--disable-banner", "--details=none"),
            f"--reports-dir={folder}",
            *(f"--select-{'method' if '#' in name else 'class'}={name}" for name in names),
        ]
        with (folder / "log").open("wb") as log:
            subprocess.run(command, cwd=work, stdout=log, stderr=subprocess.STDOUT, timeout=TIMEOUT_S, check=False)
        return results(folder / "TEST-junit-vintage.xml")


def settings(url: str, account: Account, bucket: str) -> str:
    """Returns the tests' configuration of the store, as XML."""
    values = {
        "test.fs.s3a.name": f"s3a://{bucket}/",
        "fs.contract.test.fs.s3a": f"s3a://{bucket}/",
        "fs.s3a.endpoint": url,
        "fs.s3a.endpoint.region": REGION,
        "fs.s3a.access.key": account.access_key,
        "fs.s3a.secret.key": account.secret_key,
        "fs.s3a.path.style.access": "true",
        "fs.s3a.connection.ssl.enabled": "false",
        # A retry would hide an error that the node made.
        "fs.s3a.attempts.maximum": "1",
        # Only AWS has the services that these settings turn off.
        "fs.s3a.scale.test.csvfile": " ",
        "test.fs.s3a.encryption.enabled": "false",
        "test.fs.s3a.sts.enabled": "false",
    }
    return "<configuration>\n" + "".join(
        PROPERTY.format(name=name, value=value) for name, value in values.items()
    ) + "</configuration>\n"  # fmt: skip


def results(report: Path) -> dict[str, str]:
    """Returns `passed`, `failed` or `skipped` by test, from a report in JUnit's form."""
    outcomes: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        failed = "failed" if kinds & {"failure", "error"} else None
        name = f"{case.get('classname')}#{case.get('name', '').removesuffix('()')}"
        outcomes[name] = failed or ("skipped" if "skipped" in kinds else "passed")
    return outcomes


def compiled() -> Tests:
    """Returns the tests, compiled once for a list of jars into the cache folder."""
    fetched = jars.fetched()
    sources = next(jar for jar in fetched if jar.name.endswith(jars.SOURCES))
    libraries = [*(jar for jar in fetched if jar != sources), *jars.of_spark()]
    folder = cache_dir() / "s3a-tests"
    wanted = "\n".join((jars.LIST.read_text(), *CLASSES, *MORE_CLASSES))
    done = folder / "compiled-from.txt"
    if not done.exists() or done.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        _compile(sources, libraries, folder)
        # Written last: a folder that has it is complete and current.
        done.write_text(wanted)
    return Tests(folder / "classes", libraries)


def _compile(sources: Path, libraries: Sequence[Path], folder: Path) -> None:
    with zipfile.ZipFile(sources) as archive:
        archive.extractall(folder / "sources")
        archive.extractall(folder / "classes", RESOURCES)
    files = [folder / "sources" / f"{name.replace('.', '/')}.java" for name in (*CLASSES, *MORE_CLASSES)]
    options = ["-nowarn", "-proc:none", "-implicit:class", "-encoding", "UTF-8"]
    places = ["-d", folder / "classes", "-sourcepath", folder / "sources", "-cp", ":".join(map(str, libraries))]
    run([maven.program("javac"), *options, *places, *files], timeout_s=600)
