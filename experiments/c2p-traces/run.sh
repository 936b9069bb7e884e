#!/usr/bin/env bash
# Replays each made-up trace on nodes that are home to parts of objects: run.sh LAB OUT [--quick].
set -euo pipefail
here=$(dirname "$0")
lab=$1
out=$2
quick=${3:-}

traces=$(mktemp -d)
trap 'rm -rf "$traces"' EXIT
python3 "$here/generate.py" "$traces"
for name in whole moving ranges mixed; do
  cp "$here/$name.toml" "$traces"
  "$lab" simulate "$traces/$name.toml" --out "$out/$name" ${quick:+"$quick"}
  rm -f "$out/$name"/{results.json,samples.csv,*.svg}
done
if [ -z "$quick" ]; then
  python3 "$here/../figures.py" "$here"
fi
