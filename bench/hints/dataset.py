"""Writes the inputs of the application into the lake: `spark-submit dataset.py SALES_ROWS EVENTS_ROWS`.

The values are random, so that Parquet can compress little of them, and the same in every run.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

REGIONS = 8
SALES_FILES, FILES_A_DAY = 6, 2
DAYS = ("2026-11-28", "2026-11-29", "2026-11-30")


def main() -> None:
    """Writes sales, regions and events."""
    sales_rows, events_rows = map(int, sys.argv[1:])
    spark = SparkSession.builder.appName("dataset").getOrCreate()

    def whole(bound: int, seed: int) -> F.Column:
        return F.floor(F.rand(seed) * bound)

    spark.range(0, sales_rows, 1, SALES_FILES).select(
        "id",
        whole(REGIONS, 1).alias("region_id"),
        whole(1 << 40, 2).alias("customer"),
        (F.rand(3) * 1000).alias("amount"),
        F.concat(F.lit("n"), F.hex(whole(1 << 30, 4))).alias("note"),
    ).write.parquet("s3a://data/sales/")
    for number, day in enumerate(DAYS):
        spark.range(0, events_rows // len(DAYS), 1, FILES_A_DAY).select(
            whole(REGIONS, 10 * number + 11).alias("region_id"),
            whole(5, 10 * number + 12).alias("kind"),
            F.rand(10 * number + 13).alias("value"),
        ).write.parquet(f"s3a://data/events/date={day}/")
    spark.stop()


if __name__ == "__main__":
    main()
