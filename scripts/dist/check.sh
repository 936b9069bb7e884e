#!/usr/bin/env bash
# The test of what `make dist` makes. Every check runs, then the failed ones count. Lines with `skipped:` name
# what could not be checked here, and why.
# Usage: scripts/dist/check.sh [CHECK...], each the name of a file in scripts/dist/checks
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
failed=()
checks=("$@")
[ $# -gt 0 ] || mapfile -t checks < <(basename -s .sh scripts/dist/checks/*.sh)
for check in "${checks[@]}"; do
  printf '== %s\n' "$check"
  "scripts/dist/checks/$check.sh" || { printf 'FAILED: %s\n' "$check" && failed+=("$check"); }
done
printf '%d passed, %d failed\n' "$((${#checks[@]} - ${#failed[@]}))" "${#failed[@]}"
[ "${#failed[@]}" -eq 0 ]
