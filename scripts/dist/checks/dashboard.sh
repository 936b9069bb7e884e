#!/usr/bin/env bash
# Each query of the dashboard, and each recording rule, returns data from a Prometheus that scrapes nodes.
set -euo pipefail
cd "$(dirname "$0")/../../.."
# shellcheck source=scripts/dist/environment.sh
source scripts/dist/environment.sh
dashboard=packaging/grafana/shoal.json

scripts/dist/metric_names.py "$dashboard"
has prometheus prometheus 'queries of the dashboard' || exit 0
work=$(mktemp -d)
running=()
stop() {
  for process in "${running[@]}"; do
    kill -TERM "$process" 2> /dev/null || true
    wait "$process" 2> /dev/null || true
  done
  rm -rf "$work"
}
trap stop EXIT

# The link has metrics only where it has a bandwidth.
SHOAL_LAKE_BANDWIDTH=1Gbit "$WORK/bin/shoal" dev --json --s3-port 0 --admin-port 0 --peer-port 0 --lake-port 0 \
  --dir "$work/dev" > "$work/nodes.json" 2> "$work/dev.log" &
running+=($!)
until [ -s "$work/nodes.json" ]; do
  kill -0 "${running[0]}" 2> /dev/null || fail "shoal dev did not start: $(cat "$work/dev.log")"
  sleep 0.1
done
field() {
  python3 -c 'import json, sys; nodes = json.load(open(sys.argv[1]))["nodes"]; print(*(n[sys.argv[2]] for n in nodes))' \
    "$work/nodes.json" "$1"
}
read -ra nodes <<< "$(field s3)"
read -ra admins <<< "$(field admin)"
lake=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["lake"])' "$work/nodes.json")

# A node of its own has metrics of quotas.
(
  umask 077
  cat > "$work/limited.toml" << END
s3.listen = "127.0.0.1:0"
admin.listen = "127.0.0.1:0"
lake = { endpoint = "$lake", access_key = "shoaldev", secret_key = "shoaldev-secret" }
store = { path = "$work/limited", capacity = "1GiB" }
identity = [{ access_key = "shoaldev", secret_key = "shoaldev-secret" }]
quota = [{ identity = "shoaldev", room = "50%", bandwidth = "1Gbit" }]
END
)
: > "$work/limited.log"
"$WORK/bin/shoal" serve --config "$work/limited.toml" 2> "$work/limited.log" &
running+=($!)
until limited=$(sed -n 's/.*: serving .* s3=\([^ ]*\) admin=\([^ ]*\).*/http:\/\/\1 http:\/\/\2/p' "$work/limited.log") && [ -n "$limited" ]; do
  kill -0 "${running[1]}" 2> /dev/null || fail "a node with a quota did not start: $(tail -n 2 "$work/limited.log")"
  sleep 0.1
done
nodes+=("${limited% *}")

{
  printf 'global: { scrape_interval: 1s, evaluation_interval: 1s }\nrule_files: ["%s/packaging/prometheus/*.rules.yml"]\n' "$PWD"
  printf 'scrape_configs:\n  - job_name: shoal\n    static_configs:\n      - targets: [%s]\n' \
    "$(printf '"%s", ' "${admins[@]#http://}" "${limited#* http://}")"
} > "$work/prometheus.yml"
: > "$work/prometheus.log"
prometheus --config.file "$work/prometheus.yml" --storage.tsdb.path "$work/data" --web.listen-address 127.0.0.1:0 \
  2> "$work/prometheus.log" &
running+=($!)
until port=$(sed -n 's/.*msg="Listening on" address=127.0.0.1:\([0-9]*\).*/\1/p' "$work/prometheus.log") && [ -n "$port" ]; do
  kill -0 "${running[2]}" 2> /dev/null || fail "prometheus did not start: $(tail -n 2 "$work/prometheus.log")"
  sleep 0.2
done

s3() {
  curl --silent --show-error --fail --aws-sigv4 aws:amz:us-east-1:s3 --user shoaldev:shoaldev-secret \
    --header 'x-amz-content-sha256: UNSIGNED-PAYLOAD' --output /dev/null "$@"
}

# traffic ROUND: reads of each source, writes into the tier, a prefetch.
traffic() {
  s3 --upload-file "$work/sample" "$lake/demo/sample-$1"
  s3 --upload-file "$work/sample" "$lake/demo/warm-$1"
  for node in "${nodes[@]}" "${nodes[@]}"; do
    s3 "$node/demo/sample-$1"
  done
  s3 --upload-file "$work/sample" "${nodes[0]}/demo/back/sample-$1"
  s3 "${nodes[1]}/demo/back/sample-$1"
  for admin in "${admins[@]}"; do
    "$WORK/bin/shoal" prefetch "s3://demo/warm-$1" --node "$admin" --wait > /dev/null 2>&1
    "$WORK/bin/shoal" flush --node "$admin" > /dev/null
  done
}
head -c 9M /dev/urandom > "$work/sample"
for round in 1 2 3; do
  traffic "$round"
  sleep 2
done
scripts/dist/query_dashboard.py "$dashboard" packaging/prometheus/shoal.rules.yml "http://127.0.0.1:$port"
