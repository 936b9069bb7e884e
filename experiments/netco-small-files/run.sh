#!/usr/bin/env bash
# Runs this experiment. usage: run.sh LAB OUT [--quick]
set -euo pipefail
planner="${1%/release/shoal-lab}/debug/examples/netco"
[ -x "$planner" ] || exit 0
"$planner" small-files "$2" "${@:3}"
