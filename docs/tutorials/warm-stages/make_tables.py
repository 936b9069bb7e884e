"""Writes the tables of the tutorial, sales and events: the same rows each time."""

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere


def main() -> None:
    """Writes both tables, each in two files."""
    spark = SparkSession.builder.appName("make-tables").getOrCreate()
    rows = spark.range(0, 200_000, 1, 2).withColumn("region", F.col("id") % 4)
    # A text that does not compress.
    rows = rows.withColumn("note", F.sha2(F.col("id").cast("string"), 512))
    for table, column in (("sales", "amount"), ("events", "value")):
        rows.withColumn(column, F.col("id") % 100).write.mode("overwrite").parquet(f"s3a://demo/{table}")
        print(f"{table} is written")
    spark.stop()


if __name__ == "__main__":
    main()
