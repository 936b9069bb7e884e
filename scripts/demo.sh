#!/usr/bin/env bash
# Starts a lake and three nodes, uploads a sample and reads it cold and warm from each node.
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
"$shoal" dev --s3-port 0 --admin-port 0 --lake-port 0 >> "$work/dev" &
server=$!
until grep -qx ready "$work/dev"; do
  kill -0 "$server" 2> /dev/null || { echo "error: shoal dev did not start"; exit 1; }
  sleep 0.1
done
mapfile -t nodes < <(awk '$1 ~ /^node-/ { print $2 }' "$work/dev")

s3() {
  curl --silent --show-error --fail --aws-sigv4 aws:amz:us-east-1:s3 --user shoaldev:shoaldev-secret \
    --header 'x-amz-content-sha256: UNSIGNED-PAYLOAD' "$@"
}

# Where the bytes came from, in the words of X-Cache.
explain() {
  case $1 in
    HIT) echo "this node's store" ;;
    REVALIDATED) echo "this node's store, after the lake said it is current" ;;
    PARTIAL) echo "this node's store and the lake" ;;
    MISS | BYPASS) echo "the lake" ;;
    *) echo "unknown" ;;
  esac
}

head -c "${sample_mib}M" /dev/urandom > "$work/sample"
s3 --upload-file "$work/sample" "${nodes[0]}/demo/sample"
echo "uploaded s3://demo/sample, $sample_mib MiB, through node-0"
echo
printf '%-8s %-6s %-12s %9s   %s\n' node read X-Cache time 'bytes from'
for index in "${!nodes[@]}"; do
  for read in cold warm; do
    seconds=$(s3 --dump-header "$work/head" --output "$work/read" --write-out '%{time_total}' \
      "${nodes[$index]}/demo/sample")
    cmp --quiet "$work/sample" "$work/read" || { echo "error: node-$index sent other bytes"; exit 1; }
    cache=$(tr -d '\r' < "$work/head" | awk 'tolower($1) == "x-cache:" { print $2 }')
    printf '%-8s %-6s %-12s %6.1f ms   %s\n' "node-$index" "$read" "${cache:--}" \
      "$(awk -v s="$seconds" 'BEGIN { print s * 1000 }')" "$(explain "$cache")"
  done
done
