#!/usr/bin/env bash
# Runs this experiment. usage: run.sh EXAMPLES OUT [--quick]
set -euo pipefail
planner="${1%/release/examples}/debug/examples/netco"
[ -x "$planner" ] || exit 0
"$planner" ad-hoc "$2" "${@:3}"
