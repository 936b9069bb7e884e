#!/usr/bin/env bash
# Compares policies and admissions on every trace, as README.md lists them: run.sh LAB OUT [--quick].
#
# SHOAL_TRACES names a folder with the traces that are not kept here, unpacked as README.md says; without it their rows stay as they are.
set -euo pipefail
here=$(dirname "$0")
traces=$here/../traces
lab=$1
out=$2
quick=${3:-}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

capacities=1%,5%,10%,25%
names=lru,lfu,lfuda,sieve,s3-fifo,life,duel,lru+second-miss,lru+scan-resistant,s3-fifo+second-miss,s3-fifo+scan-resistant,belady
if [ -n "$quick" ]; then
  "$lab" policies fb2010-reread "$traces/fb2010-reread.tsv" 128MB 5% lru,duel
  exit
fi

mkdir -p "$out"
python3 "$here/generate.py" "$scratch"
{
  for trace in fb2010-reread fb2010-window; do
    "$lab" policies "$trace" "$traces/$trace.tsv" 128MB $capacities $names
  done
  for trace in uniform zipf-0.6 zipf-0.9 zipf-1.2 zipf-0.9-scans hot-set; do
    "$lab" policies "$trace" "$scratch/$trace.oracleGeneral" object $capacities $names
  done
  "$lab" policies files "$scratch/files.csv" 4MiB $capacities $names
} >"$out/results.csv"

if [ -n "${SHOAL_TRACES:-}" ]; then
  python3 "$here/convert.py" "$SHOAL_TRACES" "$scratch"
  {
    "$lab" policies w106 "$scratch/w106.oracleGeneral" object $capacities $names
    "$lab" policies cdn "$scratch/cdn.oracleGeneral" object $capacities $names
    "$lab" policies fb2010-day "$SHOAL_TRACES/swim/FB-2010_samples_24_times_1hr_withInputPaths_0.tsv" 128MiB $capacities $names
    for trace in tectonic-1 tectonic-2; do
      "$lab" policies "$trace" "$scratch/$trace.csv" 4MiB $capacities $names
    done
    for workflow in "$scratch"/*.json; do
      "$lab" policies "workflow $(basename "$workflow" .json)" "$workflow" 4MiB $capacities $names
    done
  } >"$out/elsewhere.csv"
fi
python3 "$here/table.py" "$out/results.csv" "$out/elsewhere.csv" "$here/README.md"
