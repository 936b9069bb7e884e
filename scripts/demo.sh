#!/usr/bin/env bash
# Starts a lake and three nodes, uploads a sample and reads it twice from each node: it comes from the lake
# once.
# Then brings a prefix of the lake into the cache before it is read.
# Then writes objects that are acknowledged before the lake has them. With etcd, it kills the node that took
# one.
# Usage: scripts/demo.sh PATH-OF-SHOAL
set -euo pipefail

shoal=${1:?usage: scripts/demo.sh PATH-OF-SHOAL}
sample_mib=16
work=$(mktemp -d)
# Processes to stop, the last one first.
running=()

stop() {
  local index
  for ((index = ${#running[@]} - 1; index >= 0; index--)); do
    kill -TERM "${running[$index]}" 2> /dev/null || true
    wait "${running[$index]}" 2> /dev/null || true
  done
  rm -rf "$work"
}
trap stop EXIT

# Any free ports, so that a demo and a `make run` do not get into each other's way.
: > "$work/dev"
"$shoal" dev --s3-port 0 --admin-port 0 --peer-port 0 --lake-port 0 >> "$work/dev" &
running+=($!)
until grep -qx ready "$work/dev"; do
  kill -0 "${running[0]}" 2> /dev/null || { echo "error: shoal dev did not start"; exit 1; }
  sleep 0.1
done
mapfile -t nodes < <(awk '$1 ~ /^node-/ { print $2 }' "$work/dev")
lake=$(awk '$1 == "lake" { print $2 }' "$work/dev")
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

# Prints the bytes sent between two such lists: `12.0 MiB from this node, 4.0 MiB from the lake`.
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

echo
for part in 0 1 2 3 4 5 6 7; do
  s3 --upload-file "$work/sample" "$lake/demo/corpus/part-$part"
done
echo "shoal prefetch s3://demo/corpus/: $((8 * sample_mib)) MiB that no node has, at 48 MiB/s"
"$shoal" prefetch s3://demo/corpus/ --node "${admins[0]}" --rate 48MiB --wait
lake_before=$(from_lake)
for part in 0 1 2 3 4 5 6 7; do
  s3 --output "$work/read" "${nodes[$((part % 3))]}/demo/corpus/part-$part"
  cmp --quiet "$work/sample" "$work/read" || { echo "error: a node sent other bytes"; exit 1; }
done
prefetched=$(($(from_lake) - lake_before))
[ "$prefetched" = 0 ] || { echo "error: $prefetched bytes came from the lake again"; exit 1; }
echo "read through three nodes: nothing came from the lake"

# status_at URL: prints the status of the server's answer to a GET of an object.
status_at() {
  curl --silent --output /dev/null --write-out '%{http_code}' --aws-sigv4 aws:amz:us-east-1:s3 \
    --user shoaldev:shoaldev-secret --header 'x-amz-content-sha256: UNSIGNED-PAYLOAD' "$1"
}

# write_back NODE-URL KEY: writes the sample, and checks that it was acknowledged before the lake has it.
write_back() {
  s3 --dump-header "$work/head" --upload-file "$work/sample" "$1/demo/$2"
  mode=$(tr -d '\r' < "$work/head" | awk 'tolower($1) == "x-shoal-write:" { print $2 }')
  [ "$mode" = back ] || { echo "error: the write of $2 was not written back"; exit 1; }
  [ "$(status_at "$lake/demo/$2")" = 404 ] || { echo "error: the lake has $2 already"; exit 1; }
}

# reads NODE-URL KEY: checks that a node gives the sample.
reads() {
  s3 --output "$work/read" "$1/demo/$2"
  cmp --quiet "$work/sample" "$work/read" || { echo "error: $1 sent other bytes"; exit 1; }
}

echo
write_back "${nodes[0]}" back/sample
echo "uploaded s3://demo/back/sample through node-0: acknowledged (x-shoal-write: back), the lake does not have it"
reads "${nodes[1]}" back/sample
echo "read through node-1: the same bytes"
"$shoal" flush --node "${admins[2]}" s3://demo/back/ > "$work/flushed"
[ "$(status_at "$lake/demo/back/sample")" = 200 ] || { echo "error: the lake does not have back/sample"; exit 1; }
echo "shoal flush: $(cat "$work/flushed")"

echo
if ! command -v etcd > /dev/null; then
  # Only nodes of one process share a folder as their tier, and those are killed together.
  echo "skipped: a node is killed before the lake has what it acknowledged: etcd is not installed (Debian: etcd-server)"
  exit 0
fi

# free_port: sets `port` to one that no process listens on, and that the kernel gives to no connection. It
# gives no port twice: the first process to get it may not listen yet.
declare -A given=()
free_port() {
  while true; do
    port=$((10000 + RANDOM % 22000))
    [ -z "${given[$port]:-}" ] || continue
    given[$port]=1
    (: > "/dev/tcp/127.0.0.1/$port") 2> /dev/null || return 0
  done
}

# awaits WHAT SECONDS COMMAND...: waits until the command succeeds.
awaits() {
  local what=$1 tries=$(($2 * 10))
  shift 2
  until "$@" > /dev/null 2>&1; do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || { echo "error: waited in vain for $what"; tail -n 5 "$work"/*.log; exit 1; }
    sleep 0.1
  done
}

# start_etcd: starts one member, and sets `registry` to its URL.
start_etcd() {
  local peer port
  free_port
  registry=http://127.0.0.1:$port
  free_port
  peer=http://127.0.0.1:$port
  etcd --name demo --data-dir "$work/etcd" --logger zap --log-level error \
    --listen-client-urls "$registry" --advertise-client-urls "$registry" --listen-peer-urls "$peer" \
    --initial-advertise-peer-urls "$peer" --initial-cluster "demo=$peer" > "$work/etcd.log" 2>&1 &
  running+=($!)
  awaits etcd 30 curl --silent --fail "$registry/health"
}

# start_node NUMBER: a process of its own, with the lake and the tier of all others.
start_node() {
  local seeds port
  seeds=$(for port in "${peers[@]}"; do printf '"127.0.0.1:%s", ' "$port"; done)
  cat > "$work/node-$1.toml" << END
[node]
name = "process-$1"
topology = "dc1/cluster-a/rack-$1"
[s3]
listen = "127.0.0.1:${ports[$1]}"
[admin]
listen = "127.0.0.1:${admin_ports[$1]}"
[lake]
endpoint = "$lake"
access_key = "shoaldev"
secret_key = "shoaldev-secret"
[store]
path = "$work/process-$1"
capacity = "1GiB"
[cooperation]
mode = "hierarchy"
listen = "127.0.0.1:${peers[$1]}"
seeds = [${seeds%, }]
secret_key = "what the nodes of this demo share"
[write]
age = "10s"
[[write.rule]]
prefix = "s3://demo/back/"
mode = "back"
[[tier]]
name = "demo"
endpoint = "$lake"
access_key = "shoaldev"
secret_key = "shoaldev-secret"
bucket = "shoal-tier"
capacity = "1GiB"
registry = "$registry"
[[identity]]
access_key = "shoaldev"
secret_key = "shoaldev-secret"
END
  chmod 600 "$work/node-$1.toml"
  "$shoal" serve --config "$work/node-$1.toml" > /dev/null 2> "$work/process-$1.log" &
  running+=($!)
  processes[$1]=$!
}

is_at_lake() {
  [ "$(status_at "$lake/demo/$1")" = 200 ]
}

start_etcd
s3 --request PUT "$lake/shoal-tier"
ports=() admin_ports=() peers=() processes=()
for index in 0 1 2; do
  free_port && ports+=("$port")
  free_port && admin_ports+=("$port")
  free_port && peers+=("$port")
done
for index in 0 1 2; do start_node "$index"; done
for index in 0 1 2; do
  awaits "process-$index" 30 curl --silent --fail "http://127.0.0.1:${admin_ports[$index]}/readyz"
done
echo "three processes; their tier is the bucket shoal-tier, ordered by etcd at $registry"
write_back "http://127.0.0.1:${ports[0]}" back/survivor
kill -KILL "${processes[0]}"
wait "${processes[0]}" 2> /dev/null || true
killed=$SECONDS
echo "uploaded s3://demo/back/survivor through process-0, acknowledged; kill -9 process-0"
reads "http://127.0.0.1:${ports[1]}" back/survivor
echo "read through process-1: the same bytes"
awaits 'the lake to have back/survivor' 60 is_at_lake back/survivor
s3 --output "$work/read" "$lake/demo/back/survivor"
cmp --quiet "$work/sample" "$work/read" || { echo "error: the lake has other bytes"; exit 1; }
echo "the lake has it after $((SECONDS - killed)) s: another node brought it there"
