# shellcheck shell=bash
# needs: curl jq
# The objects that the page names, and the configuration of a node.
bucket lake
object lake/sales/part-0.parquet
bucket bucket
object bucket/key
s3 --output read http://127.0.0.1:9000/bucket/key
cp "$REPOSITORY/packaging/shoal.toml" /etc/shoal/shoal.toml
