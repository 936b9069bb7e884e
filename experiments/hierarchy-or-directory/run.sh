#!/usr/bin/env bash
# Runs each workload by hierarchy and by directory, at 4 to 256 nodes: run.sh LAB OUT [--quick].
set -euo pipefail
here=$(dirname "$0")
lab=$1
out=$2
quick=${3:-}

reports=$(mktemp -d)
trap 'rm -rf "$reports"' EXIT
mkdir -p "$out"
for workload in uniform zipf facebook scan; do
  printf '== %s\n' "$workload"
  "$lab" simulate "$here/$workload.toml" --out "$reports/$workload" ${quick:+"$quick"}
done
# Reports say what nodes sent each other and how much is distinct; the tables of `simulate` do not.
python3 "$here/table.py" "$reports" "$out/results.csv" ${quick:+"$quick"}
