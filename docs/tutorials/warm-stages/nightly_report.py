"""The application of the tutorial. Its second stage reads what the first one wrote, and another table."""

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere


def main() -> None:
    """Runs both stages. The schemas are given, so that Spark reads no file only to learn them."""
    spark = SparkSession.builder.appName("nightly-report").getOrCreate()

    sales = spark.read.schema("region long, note string, amount long").parquet("s3a://demo/sales")
    totals = sales.groupBy("region").agg(F.sum("amount").alias("amount"), F.max("note").alias("note"))
    totals.write.mode("overwrite").parquet("s3a://demo/totals")
    print("stage 1: totals is written")

    totals = spark.read.schema("region long, amount long").parquet("s3a://demo/totals")
    events = spark.read.schema("region long, note string, value long").parquet("s3a://demo/events")
    values = events.groupBy("region").agg(F.avg("value").alias("value"), F.max("note").alias("note"))
    totals.join(values, "region").write.mode("overwrite").parquet("s3a://demo/report")
    print("stage 2: report is written")
    spark.stop()


if __name__ == "__main__":
    main()
