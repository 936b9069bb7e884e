"""Polars with object_store, with nothing set but its environment."""

import sys

import polars

bucket, hot, new = (sys.argv[1], *(f"s3://{sys.argv[1]}/{key}" for key in sys.argv[2:]))
# Without `None` Polars asks boto3 for the key, where boto3 is installed.
alone = {"credential_provider": None}
polars.DataFrame({"number": [1, 2, 3]}).write_parquet(new, **alone)
lines = polars.scan_csv(hot, has_header=False, new_columns=["line"], **alone)
print(
    lines.select(polars.col("line").str.len_bytes().sum() + polars.len()).collect().item(),
    polars.scan_parquet(new, **alone).collect().height,
)
