# shellcheck shell=bash
# needs: curl jq
# for: 01K… = $(shoal tasks --json | jq -r '.tasks[0].id')
# The objects that the page names. Of one day all are cached, of another one some.
bucket lake
object lake/sales/_SUCCESS 1200
for part in 1 2 3 4 5 6; do
  object "lake/sales/dt=2026-11-20/part-$part.parquet"
  object "lake/sales/dt=2026-11-29/part-$part.parquet"
  object "lake/sales/dt=2026-11-30/part-$part.parquet"
done
object lake/dim/countries.csv
object lake/old/part-0.parquet
shoal pin s3://lake/sales/dt=2026-11-29/ --for 1h --wait
s3 --output read http://127.0.0.1:9000/lake/sales/dt%3D2026-11-30/part-1.parquet
