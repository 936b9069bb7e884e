"""DuckDB: Parquet and CSV by ranges, sizes taken from listings, results written back."""

from __future__ import annotations

import duckdb
import duckdb_extensions

from ..lakes import REGION
from ..store import Store


def connection(store: Store) -> duckdb.DuckDBPyConnection:
    """DuckDB with the `httpfs` extension that pip installed, pointed at the store."""
    duckdb_extensions.import_extension("httpfs")
    database = duckdb.connect()
    database.execute("LOAD httpfs")
    # Without retries, and without DuckDB's own cache of metadata and bytes: every query asks the store.
    database.execute("SET http_retries = 0; SET enable_external_file_cache = false")
    database.execute(
        f"""CREATE SECRET (TYPE s3, KEY_ID '{store.account.access_key}', SECRET '{store.account.secret_key}',
            REGION '{REGION}', ENDPOINT '{store.host}', URL_STYLE 'path', USE_SSL false)"""
    )
    return database


def parquet(store: Store) -> dict[str, object]:
    """Written by COPY, read twice: footer, few columns, filtered row groups, all of it."""
    database, at = connection(store), f"s3://{store.bucket}/duckdb/numbers.parquet"
    database.execute(
        f"""COPY (SELECT i, i % 97 AS m, hash(i) AS h, 'text ' || i AS t FROM range(800000) AS r(i))
            TO '{at}' (FORMAT parquet, ROW_GROUP_SIZE 50000)"""
    )
    asked = (
        f"SELECT count(*) FROM '{at}'",
        f"SELECT sum(m), max(i) FROM '{at}'",
        f"SELECT t FROM '{at}' WHERE i BETWEEN 654320 AND 654325",
        f"SELECT bit_xor(h), sum(length(t)) FROM '{at}'",
    )
    return {
        f"{reading}: {sql.replace(store.bucket, '')}": database.execute(sql).fetchall()
        for reading in (1, 2)
        for sql in asked
    }


def hive_partitions(store: Store) -> dict[str, object]:
    """A partitioned dataset written, found by a glob, and pruned."""
    database, at = connection(store), f"s3://{store.bucket}/duckdb/parts"
    database.execute(
        f"COPY (SELECT i, i % 5 AS part FROM range(50000) AS r(i)) TO '{at}' (FORMAT parquet, PARTITION_BY (part))"
    )
    table = f"read_parquet('{at}/*/*.parquet', hive_partitioning = true)"
    return {
        "files": database.execute(f"SELECT count(*) FROM glob('{at}/*/*.parquet')").fetchall(),
        "sums": database.execute(f"SELECT part, sum(i) FROM {table} GROUP BY part ORDER BY part").fetchall(),
        "pruned": database.execute(f"SELECT count(*) FROM {table} WHERE part = 3").fetchall(),
    }


def csv(store: Store) -> dict[str, object]:
    """Plain and compressed CSV."""
    database = connection(store)
    seen: dict[str, object] = {}
    for name in ("plain.csv", "packed.csv.gz"):
        at = f"s3://{store.bucket}/duckdb/{name}"
        database.execute(f"COPY (SELECT i, 'row ' || i AS t FROM range(20000) AS r(i)) TO '{at}'")
        seen[name] = [database.execute(f"SELECT sum(i), max(t) FROM '{at}'").fetchall() for _ in range(2)]
    return seen


CHECKS = (parquet, hive_partitions, csv)
