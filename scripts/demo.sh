#!/usr/bin/env bash
# Starts a lake and three nodes, uploads a sample and reads it twice from each node: it comes from the lake once.
# Usage: scripts/demo.sh PATH-OF-SHOAL
set -euo pipefail

shoal=${1:?usage: scripts/demo.sh PATH-OF-SHOAL}
sample_mib=16
work=$(mktemp -d)
server=

stop() {
  if [ -n "$server" ]; then
    kill -TERM "$server" 2> /dev/null || true
    wait "$server" 2> /dev/null || true
  fi
  rm -rf "$work"
}
trap stop EXIT

# Any free ports, so that a demo and a `make run` do not get into each other's way.
: > "$work/dev"
"$shoal" dev --s3-port 0 --admin-port 0 --peer-port 0 --lake-port 0 >> "$work/dev" &
server=$!
until grep -qx ready "$work/dev"; do
  kill -0 "$server" 2> /dev/null || { echo "error: shoal dev did not start"; exit 1; }
  sleep 0.1
done
mapfile -t nodes < <(awk '$1 ~ /^node-/ { print $2 }' "$work/dev")
mapfile -t admins < <(awk '$1 ~ /^node-/ { print $4 }' "$work/dev")

s3() {
  curl --silent --show-error --fail --aws-sigv4 aws:amz:us-east-1:s3 --user shoaldev:shoaldev-secret \
    --header 'x-amz-content-sha256: UNSIGNED-PAYLOAD' "$@"
}

# Bytes of blocks that a node has sent, by source: `local 1048576` and so on.
sent() {
  curl --silent --show-error --fail "$1/metrics" |
    sed -n 's/^shoal_read_bytes_total{source="\(.*\)"} \(.*\)/\1 \2/p'
}

# Bytes that all nodes together have received from the lake.
from_lake() {
  for admin in "${admins[@]}"; do
    curl --silent --show-error --fail "$admin/metrics"
  done | awk '$1 == "shoal_lake_bytes_total" { sum += $2 } END { printf "%d\n", sum }'
}

# What was sent between two such lists: `12.0 MiB from this node, 4.0 MiB from the lake`.
between() {
  awk '
    BEGIN { place["local"] = "this node"; place["peer"] = "other nodes"; place["lake"] = "the lake" }
    NR == FNR { before[$1] = $2; next }
    $2 > before[$1] {
      printf "%s%.1f MiB from %s", separator, ($2 - before[$1]) / 1048576, place[$1]
      separator = ", "
    }
  ' "$1" "$2"
}

head -c "${sample_mib}M" /dev/urandom > "$work/sample"
s3 --upload-file "$work/sample" "${nodes[0]}/demo/sample"
echo "uploaded s3://demo/sample, $sample_mib MiB, through node-0"
echo
lake_before=$(from_lake)
printf '%-8s %-6s %-12s %9s   %s\n' node read X-Cache time bytes
for index in "${!nodes[@]}"; do
  # The first read of a node is not always a miss: other nodes may have left blocks with it, as their home.
  for read in first second; do
    sent "${admins[$index]}" > "$work/before"
    seconds=$(s3 --dump-header "$work/head" --output "$work/read" --write-out '%{time_total}' \
      "${nodes[$index]}/demo/sample")
    cmp --quiet "$work/sample" "$work/read" || { echo "error: node-$index sent other bytes"; exit 1; }
    cache=$(tr -d '\r' < "$work/head" | awk 'tolower($1) == "x-cache:" { print $2 }')
    sent "${admins[$index]}" > "$work/after"
    printf '%-8s %-6s %-12s %6.1f ms   %s\n' "node-$index" "$read" "${cache:--}" \
      "$(awk -v s="$seconds" 'BEGIN { print s * 1000 }')" "$(between "$work/before" "$work/after")"
  done
done
echo
awk -v bytes="$(($(from_lake) - lake_before))" -v read="$((2 * ${#nodes[@]} * sample_mib))" \
  'BEGIN { printf "from the lake, all nodes: %.1f MiB, for %d MiB read\n", bytes / 1048576, read }'
