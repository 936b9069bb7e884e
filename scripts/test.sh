#!/usr/bin/env bash
# Every test of this repository, one step after another. What this machine cannot run is named at the end with its reason.
# S3_TESTS=DIR uses a checkout of ceph/s3-tests that exists.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$HOME/.cache/shoal/target}"
# What the scripts test is what was compiled here.
export SHOAL="$CARGO_TARGET_DIR/debug/shoal"

S3_TESTS_URL=https://github.com/ceph/s3-tests

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
  "$@" 2>&1 | tee "$log"
  if [ "${PIPESTATUS[0]}" -eq 0 ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    printf 'FAILED: %s\n' "$name"
  fi
  local line
  while IFS= read -r line; do
    skipped+=("$name: $line")
  done < <(sed -n 's/^ *skipped: //p' "$log")
}

# cargo prints a line of counts for each of its test binaries; those are added up.
cargo_tests() {
  printf '== cargo test\n'
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

scripted_tests() {
  step 'experiments, each with one seed and larger blocks' experiments/run.sh --quick
  if command -v curl > /dev/null; then
    step 'demo: three nodes read a sample cold and warm' scripts/demo.sh "$SHOAL"
  else
    skipped+=('demo: curl is not installed')
  fi
  if command -v python3 > /dev/null; then
    step 'nodes that fail while clients read, in networks of their own' tests/net/run.sh
    step 'real clients at real lakes' tests/real/run.sh
    step "versitygw's own suite through a node" tests/full-flow/run.sh
    s3_tests
  else
    skipped+=("nodes that fail, real clients, versitygw's own suite, ceph/s3-tests: python3 is not installed")
  fi
}

s3_tests() {
  local checkout=() lake
  if [ -n "${S3_TESTS:-}" ]; then
    checkout=(--s3-tests "$S3_TESTS")
  elif ! compgen -G "${XDG_CACHE_HOME:-$HOME/.cache}/shoal/s3-tests-*/.git" > /dev/null \
    && ! git ls-remote --exit-code "$S3_TESTS_URL" HEAD > /dev/null 2>&1; then
    skipped+=("ceph/s3-tests through a node: $S3_TESTS_URL cannot be reached, and S3_TESTS names no checkout")
    return
  fi
  for lake in ceph minio; do
    step "ceph/s3-tests through a node, at $lake" \
      tests/s3-tests/run.sh --lake "$lake" "${checkout[@]+"${checkout[@]}"}"
  done
}

cargo_tests
if cargo build --locked --package shoal; then
  scripted_tests
else
  failed=$((failed + 1))
fi

printf '\n'
for reason in "${skipped[@]+"${skipped[@]}"}"; do
  printf 'skipped: %s\n' "$reason"
done
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
