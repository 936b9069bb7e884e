"""DuckDB with its extension `aws`, with nothing set but its environment and the place of the endpoint."""

import os
import sys

import duckdb
import duckdb_extensions

bucket, hot, new = (sys.argv[1], *(f"s3://{sys.argv[1]}/{key}" for key in sys.argv[2:]))
database = duckdb.connect()
for extension in ("httpfs", "aws"):
    duckdb_extensions.import_extension(extension, con=database)
    database.execute(f"LOAD {extension}")
host = os.environ["AWS_ENDPOINT_URL_S3"].removeprefix("http://")
database.execute(
    f"CREATE SECRET (TYPE s3, PROVIDER credential_chain, ENDPOINT '{host}', URL_STYLE 'path', USE_SSL false)"
)
database.execute(f"COPY (SELECT * FROM range(3)) TO '{new}' (FORMAT parquet)")
for query in (f"SELECT size FROM read_blob('{hot}')", f"SELECT count(*) FROM read_parquet('{new}')"):
    print(database.execute(query).fetchall()[0][0], end=" ")
