#!/usr/bin/env bash
# Every test of this repository, one step after another. A step that this machine cannot run is named with its reason.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$HOME/.cache/shoal/target}"

log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0
failed=0
skipped=()

# Runs a step that counts as one test.
step() {
  local name=$1
  shift
  printf '\n== %s\n' "$name"
  if "$@"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    printf 'FAILED: %s\n' "$name"
  fi
}

# cargo prints a line of counts for each of its test binaries; those are added up.
cargo_tests() {
  cargo test --workspace --locked --no-fail-fast 2>&1 | tee "$log"
  local status=${PIPESTATUS[0]}
  local counts
  counts=$(awk '/^test result:/ { p += $4; f += $6 } END { print p + 0, f + 0 }' "$log")
  passed=$((passed + ${counts% *}))
  failed=$((failed + ${counts#* }))
  # A crate that does not compile has no counts.
  if [ "$status" -ne 0 ] && [ "${counts#* }" -eq 0 ]; then
    failed=$((failed + 1))
  fi
}

demo() {
  cargo build --locked --package shoal && scripts/demo.sh "$CARGO_TARGET_DIR/debug/shoal"
}

printf '== cargo test\n'
cargo_tests

if command -v curl > /dev/null; then
  step 'demo: three nodes read a sample cold and warm' demo
else
  skipped+=('demo: curl is not installed')
fi

if [ -x tests/real/run.sh ]; then
  step 'real lakes and real clients' tests/real/run.sh
else
  skipped+=('real lakes and real clients: tests/real/run.sh is not there')
fi

printf '\n'
for reason in "${skipped[@]+"${skipped[@]}"}"; do
  printf 'skipped: %s\n' "$reason"
done
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
