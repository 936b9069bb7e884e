#!/usr/bin/env bash
# Reports how predictable SWIM's public Facebook jobs are: run.sh LAB OUT [--quick].
#
# SHOAL_TRACES names a folder with SWIM's files in `swim/`; without it the committed reports stay as they are.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
lab=$1
out=$2
if [ -n "${3:-}" ]; then
  "$lab" predict "$here/../traces/fb2010-window.tsv" 2>/dev/null | sed -n 1,8p
  exit
fi
[ -n "${SHOAL_TRACES:-}" ] || exit 0
mkdir -p "$out"
with_paths=$SHOAL_TRACES/swim/FB-2010_samples_24_times_1hr_withInputPaths_0.tsv
{
  "$lab" predict "$with_paths" 2>/dev/null | sed '/^From /,$d'
  "$lab" predict --hourly "$with_paths"
} >"$out/fb2010-with-paths.txt"
python3 "$here/known.py" "$with_paths" >"$out/known-before.txt"
for name in FB-2009_samples_24_times_1hr_0 FB-2009_samples_24_times_1hr_1 FB-2010_samples_24_times_1hr_0; do
  printf '== %s\n' "$name"
  "$lab" predict "$SHOAL_TRACES/swim/$name.tsv" 2>/dev/null | sed '/^From /,$d'
done >"$out/without-paths.txt"
