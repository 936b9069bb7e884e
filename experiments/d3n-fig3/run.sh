#!/usr/bin/env bash
# Compares the model with the simulator. usage: run.sh LAB OUT [--quick]
set -euo pipefail
"$1" throughput-model "$(dirname "$0")/../traces/fb2010-reread.tsv" "$2" "${@:3}"
"$1" throughput-footprint "$2/footprint.csv"
