#!/usr/bin/env bash
# Generates histories of a month and measures how fast and with how much memory they are read and learned: run.sh LAB OUT [--quick].
set -euo pipefail
lab=$1
out=$2
runs=108000
requests=1080000
if [ -n "${3:-}" ]; then
  runs=3000
  requests=3000
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$out"

"$lab" generate runs "$runs" >"$scratch/runs.jsonl"
"$lab" generate requests "$requests" >"$scratch/access.log"
{
  grep -m1 'model name' /proc/cpuinfo | sed 's/.*: //'
  for file in runs.jsonl access.log; do
    printf '\n%s: %s lines\n' "$file" "$(wc -l <"$scratch/$file")"
    "$lab" predict "$scratch/$file" 2>"$scratch/cost" >"$scratch/report"
    cat "$scratch/cost"
    sed -n '3,8p' "$scratch/report"
  done
  for share in 0.25 0.4 0.6; do
    printf '\n%s of the runs have a name that never comes back\n' "$share"
    "$lab" generate runs "$runs" "$share" >"$scratch/runs.jsonl"
    "$lab" predict "$scratch/runs.jsonl" 2>/dev/null | sed -n '3,8p'
    "$lab" predict --hourly "$scratch/runs.jsonl"
  done
} >"$out/measured.txt"
cat "$out/measured.txt"
