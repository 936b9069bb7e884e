"""The application that is measured, in two stages: `spark-submit application.py MARKS`.

Stage 1 joins sales with regions. Stage 2 joins aggregates of the result and of events. The file MARKS gets one line for
each moment, in JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere


def mark(what: str) -> None:
    """Writes down the time."""
    with Path(sys.argv[1]).open("a") as file:
        file.write(json.dumps({"at": time.time(), "what": what}) + "\n")


def main() -> None:
    """Runs both stages."""
    spark = SparkSession.builder.appName("nightly-report").getOrCreate()
    mark("ready")
    sales = spark.read.parquet("s3a://data/sales/")
    regions = spark.read.option("header", True).option("inferSchema", True).csv("s3a://data/ref/regions.csv")
    sales.join(regions, "region_id").write.mode("overwrite").parquet("s3a://data/tmp/joined/")
    mark("stage 1")
    joined = spark.read.parquet("s3a://data/tmp/joined/")
    events = spark.read.parquet("s3a://data/events/")
    amounts = joined.groupBy("region_id", "region").agg(F.sum("amount").alias("amount"))
    values = events.groupBy("region_id").agg(F.avg("value").alias("v"))
    amounts.join(values, "region_id").write.mode("overwrite").parquet("s3a://data/out/report/")
    mark("stage 2")
    spark.stop()


if __name__ == "__main__":
    main()
