# shellcheck shell=bash
# needs: curl
# with: SHOAL_STORE_CAPACITY=100GiB
# An event log of an application that has read tables at the lake, and the event of the page, whose first stage has
# read its inputs.
python3 "$REPOSITORY/docs/tutorials/event_logs.py" events
mkdir -p /var/log/spark-events
sed 's/orders_2026-11-29/nightly-report/g' events/orders-2026-11-29 > /var/log/spark-events/app-20261129
bucket lake
object lake/raw/part-0
object lake/regions/part-0
block json 1 hints > event.json
shoal hint event.json
until [ "$(shoal hints | grep -c '^kept')" = 2 ]; do sleep 0.1; done
s3 --output read http://127.0.0.1:9000/lake/raw/part-0
