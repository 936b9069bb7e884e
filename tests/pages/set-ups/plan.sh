# shellcheck shell=bash
# needs: shoal-planner
# for: ACCESS_KEY = shoaldev
# for: 6h = 24h
# for: orders_daily_ = orders_
# A history in each form that the page names. Its jobs run once a day.
block csv 1 plan | head -1 > jobs.csv
python3 "$REPOSITORY/docs/tutorials/event_logs.py" /var/log/spark-events
mkdir logs
for day in 15 16 17 18 19 20; do
  echo "orders,2026-11-${day}T02:00:04Z,2026-11-${day}T02:17:40Z,s3://lake/orders/dt=2026-11-$((day - 1))/,8589934592" >> jobs.csv
  for node in 1 2 3; do
    access_line "2026-11-${day}T02:00:0$node.000Z" "orders/$day-$node" >> "n$node.log"
    printf 'x lake [%s/Nov/2026:02:00:0%s +0000] 10.0.0.9 etl ID REST.GET.OBJECT k "GET /lake/k HTTP/1.1" 200 - 9 9 1 1 "-" "-" -\n' \
      "$day" "$node" >> "logs/n$node"
  done
done
cp n1.log access.log
