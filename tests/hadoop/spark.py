"""Spark writes partitioned Parquet by each way that Hadoop has to commit, and reads it back."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from real.lakes import REGION, Account

ROWS = 4000
REFUSED = "refused on purpose"
# Of a Java that does not run for long.
FAST_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
# A task that fails is tried again twice.
MASTER = "local[2,3]"
# Spark gives each job an id of its own, which is in the names of its files.
_JOB = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

_BY_HADOOP = {
    "spark.sql.sources.commitProtocolClass": "org.apache.spark.internal.io.cloud.PathOutputCommitProtocol",
    "spark.sql.parquet.output.committer.class": "org.apache.spark.internal.io.cloud.BindingParquetOutputCommitter",
    "mapreduce.outputcommitter.factory.scheme.s3a": "org.apache.hadoop.fs.s3a.commit.S3ACommitterFactory",
}
_BY_RENAMES = {
    "spark.sql.sources.commitProtocolClass": (
        "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
    ),
    "spark.sql.parquet.output.committer.class": "org.apache.parquet.hadoop.ParquetOutputCommitter",
}


@dataclass(frozen=True)
class Committer:
    """A way to commit, and the settings of Spark that choose it."""

    name: str
    settings: dict[str, str] = field(default_factory=dict)


COMMITTERS = (
    Committer("magic", {**_BY_HADOOP, "fs.s3a.committer.name": "magic"}),
    Committer("directory", {**_BY_HADOOP, "fs.s3a.committer.name": "directory"}),
    Committer(
        "partitioned",
        # A write replaces only the partitions that its rows are in.
        {
            **_BY_HADOOP,
            "fs.s3a.committer.name": "partitioned",
            "fs.s3a.committer.staging.conflict-mode": "replace",
        },
    ),
    Committer("renames", {**_BY_RENAMES, "mapreduce.fileoutputcommitter.algorithm.version": "1"}),
    Committer("renames-by-task", {**_BY_RENAMES, "mapreduce.fileoutputcommitter.algorithm.version": "2"}),
)


def session(jars: Sequence[Path], folder: Path, account: Account, endpoints: dict[str, str]) -> SparkSession:
    """Returns a Spark in this process; `endpoints` says where each bucket is."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    s3a = {
        "access.key": account.access_key,
        "secret.key": account.secret_key,
        "endpoint.region": REGION,
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
        "buffer.dir": str(folder / "buffer"),
        "committer.staging.tmp.path": f"file://{folder}/staging",
        # Files of some MiB go up in parts, and are copied in parts.
        "multipart.size": "5M",
        "multipart.threshold": "5M",
        # A retry would hide an error that the node made.
        "attempts.maximum": "1",
        "retry.limit": "1",
        "retry.throttle.limit": "1",
    } | {f"bucket.{bucket}.endpoint": url for bucket, url in endpoints.items()}
    settings = {
        "spark.driver.extraClassPath": ":".join(map(str, jars)),
        "spark.driver.memory": "1g",
        # The work is small: compiling costs more than it saves.
        "spark.driver.extraJavaOptions": " ".join(FAST_START),
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        **{f"spark.hadoop.fs.s3a.{name}": value for name, value in s3a.items()},
    }
    builder = SparkSession.builder.master(MASTER).appName("shoal")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def work(spark: SparkSession, committer: Committer, bucket: str) -> dict[str, object]:
    """Writes, appends, overwrites and fails, and returns the rows after each step."""
    for name, value in committer.settings.items():
        spark.conf.set(name, value)
    at = f"s3a://{bucket}/{committer.name}"
    seen: dict[str, object] = {}
    write(rows(spark, 0), f"{at}/table", "errorifexists")
    seen["written"] = summary(spark, f"{at}/table")
    write(rows(spark, 1).where("part < 2"), f"{at}/table", "append")
    seen["appended"] = summary(spark, f"{at}/table")
    write(rows(spark, 2), f"{at}/table", "overwrite")
    seen["overwritten"] = summary(spark, f"{at}/table")
    write(failing_once(rows(spark, 3)), f"{at}/table", "append")
    seen["appended by tasks that failed once"] = summary(spark, f"{at}/table")
    try:
        write(failing(rows(spark, 4)), f"{at}/table", "append")
        seen["a job that fails"] = "ended well"
    except Exception as error:
        seen["a job that fails"] = REFUSED in str(error)
    seen["after the job that failed"] = summary(spark, f"{at}/table")
    write(large(spark), f"{at}/large", "overwrite", partitioned=False)
    seen["large"] = summary(spark, f"{at}/large")
    return seen


def read_elsewhere(spark: SparkSession, committer: Committer, bucket: str, url: str) -> dict[str, object]:
    """Reads the rows that `work` left at another endpoint, and returns them."""
    other = spark.newSession()
    # Hadoop keeps one connection to a bucket for all sessions, so this one makes its own.
    other.conf.set("fs.s3a.impl.disable.cache", "true")
    other.conf.set(f"fs.s3a.bucket.{bucket}.endpoint", url)
    at = f"s3a://{bucket}/{committer.name}"
    return {"after the job that failed": summary(other, f"{at}/table"), "large": summary(other, f"{at}/large")}


def rows(spark: SparkSession, seed: int) -> DataFrame:
    """Returns rows in two tasks. They are the same in every run, and differ by seed."""
    return spark.range(0, ROWS, 1, 2).select(
        (F.col("id") + seed * ROWS).alias("i"),
        (F.col("id") % 3).alias("part"),
        F.sha2((F.col("id") * 7 + seed).cast("string"), 256).alias("text"),
    )


def large(spark: SparkSession) -> DataFrame:
    """Returns the rows of one file of about 16 MiB that does not compress."""
    columns = [F.sha2(F.concat_ws("/", "id", F.lit(number)), 512).alias(f"c{number}") for number in range(4)]
    return spark.range(0, 60_000, 1, 1).select((F.col("id") % 3).alias("part"), F.col("id").alias("i"), *columns)


def failing(frame: DataFrame) -> DataFrame:
    """Returns the same rows, but each task raises near its end, with files under way."""
    refused = F.raise_error(F.lit(REFUSED)).cast("bigint")
    return frame.withColumn("i", F.when(F.col("i") % 2000 == 1990, refused).otherwise(F.col("i")))


def failing_once(frame: DataFrame) -> DataFrame:
    """Returns the same rows, but each task fails as above when Spark tries it for the first time."""

    @F.udf("bigint")
    def checked(i: int) -> int:
        context: Any = TaskContext.get()
        if i % 2000 == 1990 and context.attemptNumber() == 0:
            raise ValueError(REFUSED)
        return i

    return frame.withColumn("i", checked("i"))


def write(frame: DataFrame, at: str, mode: str, *, partitioned: bool = True) -> None:
    """Writes a table of Parquet files, in a folder for each value of `part`."""
    writer = frame.write.mode(mode)
    (writer.partitionBy("part") if partitioned else writer).parquet(at)


def summary(spark: SparkSession, at: str) -> list[list[object]]:
    """Returns count and checksum of the rows of each partition, which are equal for equal sets of rows."""
    frame = spark.read.parquet(at)
    columns = sorted(set(frame.columns) - {"part"})
    totals = frame.groupBy("part").agg(F.count("*"), F.sum("i"), F.sum(F.xxhash64(*columns).cast("decimal(38,0)")))
    return sorted([str(value) for value in row] for row in totals.collect())


def nameless(key: str) -> str:
    """Returns the name of a file without the id of the job that wrote it."""
    return _JOB.sub("JOB", key)
