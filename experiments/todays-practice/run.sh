#!/usr/bin/env bash
# Sends the requests of each experiment through one cache with the room of its whole cluster: run.sh LAB OUT [--quick].
set -euo pipefail
here=$(dirname "$0")
lab=$1
out=$2
quick=${3:-}

mkdir -p "$out"
{
  echo 'experiment,varied,seed,room_bytes,footprint_bytes,policy,requests,misses,missed_bytes'
  for name in todays-practice/d3n-fig3-facebook todays-practice/d3n-fig3-industry d3n-fig11/EXPERIMENT d3n-fig12/EXPERIMENT \
    d3n-fig13/EXPERIMENT d3n-fig13/server dissertation-fig6-8/EXPERIMENT dissertation-fig6-12/EXPERIMENT c2p-fig8/EXPERIMENT \
    c2p-fig9/EXPERIMENT; do
    "$lab" practice "$name" "$here/../$name.toml" ${quick:+"$quick"}
  done
} >"$out/results.csv"
if [ -z "$quick" ]; then
  python3 "$here/table.py" "$out/results.csv" "$here/README.md"
fi
