#!/usr/bin/env bash
# Compares the model with the simulator. usage: run.sh EXAMPLES OUT [--quick]
set -euo pipefail
"$1/throughput_model" "$(dirname "$0")/../traces/fb2010-reread.tsv" "$2" "${@:3}"
"$1/throughput_footprint" "$2/footprint.csv"
