"""Polars: suffix ranges without a HEAD, then the pages that a query needs."""

from __future__ import annotations

import polars

from ..lakes import REGION
from ..store import Store


def options(store: Store) -> dict[str, str | int]:
    """Polars' way to name an endpoint; no retries."""
    return {
        "aws_endpoint_url": store.url,
        "aws_access_key_id": store.account.access_key,
        "aws_secret_access_key": store.account.secret_key,
        "aws_region": REGION,
        "aws_allow_http": "true",
        "max_retries": 0,
    }


def frame(rows: int) -> polars.DataFrame:
    """Returns a table that is the same in every run."""
    return polars.DataFrame({"i": range(rows)}).with_columns(
        m=polars.col("i") % 97, t=polars.format("text {}", polars.col("i")), x=polars.col("i") * 0.5
    )


def scans_parquet(store: Store) -> dict[str, object]:
    """Written by a sink, scanned twice: projected, filtered, whole."""
    at, table = f"s3://{store.bucket}/polars/table.parquet", frame(500_000)
    table.lazy().sink_parquet(at, storage_options=options(store), row_group_size=50_000, compression="uncompressed")
    seen: dict[str, object] = {}
    for reading in (1, 2):
        scan = polars.scan_parquet(at, storage_options=options(store), cache=False)
        seen[f"columns {reading}"] = scan.select(polars.col("m").sum(), polars.col("x").max()).collect().rows()
        seen[f"filtered {reading}"] = scan.filter(polars.col("i").is_between(1234, 1236)).collect().rows()
        seen[f"whole {reading}"] = scan.collect().equals(table)
    return seen


def scans_a_folder(store: Store) -> dict[str, object]:
    """Several files by a glob, CSV and NDJSON beside them."""
    at = f"s3://{store.bucket}/polars/folder"
    for number, part in enumerate(frame(9_000).iter_slices(3_000)):
        part.write_parquet(f"{at}/{number}.parquet", storage_options=options(store))
    frame(2_000).lazy().sink_csv(f"{at}/table.csv", storage_options=options(store))
    frame(2_000).lazy().sink_ndjson(f"{at}/table.ndjson", storage_options=options(store))
    total = polars.col("i").sum()
    return {
        "parquet": polars.scan_parquet(f"{at}/*.parquet", storage_options=options(store))
        .select(total)
        .collect()
        .rows(),
        "csv": polars.scan_csv(f"{at}/table.csv", storage_options=options(store)).select(total).collect().rows(),
        "ndjson": polars.scan_ndjson(f"{at}/table.ndjson", storage_options=options(store))
        .select(total)
        .collect()
        .rows(),
    }


CHECKS = (scans_parquet, scans_a_folder)
