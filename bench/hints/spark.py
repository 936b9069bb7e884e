"""Spark with OpenLineage's listener: its packages and jars, and `spark-submit`."""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from real import maven
from real.lakes import REGION, Account
from real.processes import run

ROOT = Path(__file__).parents[2]
OWN = Path(__file__).parent
VERSIONS = "PySpark 3.5.6, hadoop-aws 3.3.4, openlineage-spark_2.12 1.37.0"
NAMESPACE = "etl"
MASTER = "local[2]"
TIMEOUT_S = 600


@dataclass(frozen=True)
class Times:
    """The seconds of one run of the application."""

    stage_1: float
    stage_2: float
    """From the start of the process to its end."""
    whole: float


class Spark:
    """`spark-submit` of an environment of its own, made once and kept in the cache folder."""

    def __init__(self, folder: Path, account: Account, prefix: Sequence[str]) -> None:
        """`prefix` is the beginning of its commands."""
        maven.program("java")
        self._folder, self._account, self._prefix, self._runs = folder, account, prefix, 0
        self._jars = maven.fetched(OWN / "jars.txt")
        environment = shlex.quote(str(ROOT / "tests" / "real" / "environment.sh"))
        requirements = shlex.quote(str(OWN / "requirements.txt"))
        script = f"set -e; source {environment}; virtual_environment bench-hints {requirements}"
        self._python = Path(run(["bash", "-c", script], timeout_s=1800).strip())

    def dataset(self, url: str, sales_rows: int, events_rows: int) -> None:
        """Writes the inputs at an endpoint of S3."""
        self._submit("dataset.py", url, None, str(sales_rows), str(events_rows))

    def application(self, url: str, events_url: str | None) -> Times:
        """Runs the application at an endpoint of S3. With `events_url` the listener sends events there."""
        marks = self._folder / "marks.jsonl"
        marks.unlink(missing_ok=True)
        began = time.time()
        self._submit("application.py", url, events_url, str(marks))
        ended = time.time()
        at = {line["what"]: line["at"] for line in map(json.loads, marks.read_text().splitlines())}
        return Times(at["stage 1"] - at["ready"], at["stage 2"] - at["stage 1"], ended - began)

    def _submit(self, script: str, url: str, events_url: str | None, *arguments: str) -> None:
        self._runs += 1
        work = self._folder / f"run-{self._runs}"
        work.mkdir(parents=True)
        settings = self._settings(work, url) | (_listener(events_url) if events_url else {})
        command = [
            *self._prefix,
            str(self._python.with_name("spark-submit")),
            *("--master", MASTER, "--driver-memory", "2g"),
            *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")),
            str(OWN / script),
            *arguments,
        ]
        environment = {
            "PATH": f"{self._python.parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(work),
            "PYSPARK_PYTHON": str(self._python),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        log = work / "spark.log"
        with log.open("wb") as output:
            done = subprocess.run(
                command,
                stdout=output,
                stderr=output,
                env=environment,
                cwd=work,
                timeout=TIMEOUT_S,
                check=False,
                start_new_session=True,
            )
        if done.returncode:
            lines = log.read_text(errors="replace").splitlines()
            raise RuntimeError(f"{script} ended with status {done.returncode}\n" + "\n".join(lines[-30:]))

    def _settings(self, work: Path, url: str) -> dict[str, str]:
        s3a = {
            "endpoint": url,
            "endpoint.region": REGION,
            "path.style.access": "true",
            "connection.ssl.enabled": "false",
            "access.key": self._account.access_key,
            "secret.key": self._account.secret_key,
            "buffer.dir": str(work / "buffer"),
        }
        return {
            "spark.driver.extraClassPath": ":".join(map(str, self._jars)),
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.local.dir": str(work / "local"),
            "spark.sql.warehouse.dir": str(work / "warehouse"),
            "spark.sql.shuffle.partitions": "4",
            **{f"spark.hadoop.fs.s3a.{name}": value for name, value in s3a.items()},
        }


def _listener(events_url: str) -> dict[str, str]:
    return {
        "spark.extraListeners": "io.openlineage.spark.agent.OpenLineageSparkListener",
        "spark.openlineage.transport.type": "http",
        "spark.openlineage.transport.url": events_url,
        "spark.openlineage.namespace": NAMESPACE,
    }
