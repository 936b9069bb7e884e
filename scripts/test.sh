#!/usr/bin/env bash
# The tests of this repository, in three rungs. The end names the tests that this machine cannot run or this
# rung leaves out, with the reason, the slowest steps, and what failed.
# QUICK=1: the unit tests. Without it: all tests that cargo runs, and a few stories, real clients and the demo.
# ALL=1: everything.
# S3_TESTS=DIR uses a checkout of ceph/s3-tests that exists (ALL=1).
set -uo pipefail
cd "$(dirname "$0")/.." || exit
# shellcheck source=scripts/packages.sh
source scripts/packages.sh
# shellcheck source=scripts/room.sh
source scripts/room.sh
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$HOME/.cache/shoal/target}"
# The scripts test the binary that this script compiles.
export SHOAL="$CARGO_TARGET_DIR/debug/shoal"
# Most tests spend most of their time waiting for a clock or a socket.
export RUST_TEST_THREADS="${RUST_TEST_THREADS:-$(($(nproc) * 4))}"

# shellcheck source=scripts/solver.sh
source scripts/solver.sh

# Bytes of lakes, of stores with six disks and of nodes at a time, beyond what is compiled.
TESTS_GIB=12

# One way to fail of each kind: reads, a tier, a directory, its order.
SOME_STORIES=(
  a_node_that_is_killed_costs_at_most_a_retry
  nodes_that_are_killed_one_after_the_other_lose_nothing
  a_node_may_freeze_at_any_stage_of_a_change
  an_etcd_that_is_lost_with_its_disks_is_recovered_from_receipts
  a_directory_that_fails_costs_no_byte
  coherent_reads_fit_one_order_of_all_writes
)

S3_TESTS_URL=https://github.com/ceph/s3-tests

# Each step leaves its log here and one line in `outcomes`: passed, failed, seconds, name.
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
touch "$results/outcomes" "$results/skipped" "$results/failed"

outcome() {
  printf '%s %s %s %s\n' "$1" "$2" "$3" "$4" >> "$results/outcomes"
}

skip() {
  printf '%s\n' "$1" >> "$results/skipped"
}

# Repeats of a failed step what its log $2 says of failures, for the end of the output.
repeat_failure() {
  {
    printf '\nfailed: %s\n' "$1"
    # A step that stops early has its reason in its last lines.
    grep -aE -A 4 '^(FAIL|ERROR|error|failures:)|\.\.\. FAILED$|panicked at' "$2" | head -n 24 | cut -c 1-300
    printf '...\n'
    tail -n 6 "$2" | cut -c 1-300
  } >> "$results/failed"
}

# Runs a step that counts as one test. Its output comes as one piece, as other steps run beside it.
step() {
  local name=$1 log began=$SECONDS passed=1 failed=0
  shift
  log=$(mktemp "$results/log.XXXXXX")
  "$@" > "$log" 2>&1 || { passed=0 failed=1; }
  printf '\n== %s\n' "$name"
  cat "$log"
  [ "$failed" -eq 0 ] || { printf 'FAILED: %s\n' "$name" && repeat_failure "$name" "$log"; }
  sed -n "s/^ *skipped: /$(sed 's/[&/\]/\\&/g' <<< "$name"): /p" "$log" >> "$results/skipped"
  outcome "$passed" "$failed" "$((SECONDS - began))" "$name"
}

# cargo prints a line of counts for each of its test binaries; those are added up.
cargo_tests() {
  local log=$results/cargo began status counts
  # Compiling is no part of a step's time.
  cargo test --workspace "${left_out[@]}" --locked --no-run "$@" 2>&1 || true
  began=$SECONDS
  printf '== cargo test\n'
  cargo test --workspace "${left_out[@]}" --locked --no-fail-fast "$@" 2>&1 | tee "$log"
  status=${PIPESTATUS[0]}
  counts=$(awk '/^test result:/ { p += $4; f += $6 } END { print p + 0, f + 0 }' "$log")
  # A crate that does not compile has no counts.
  if [ "$status" -ne 0 ] && [ "${counts#* }" -eq 0 ]; then
    counts="${counts% *} 1"
  fi
  [ "${counts#* }" -eq 0 ] || repeat_failure 'cargo test' "$log"
  outcome "${counts% *}" "${counts#* }" "$((SECONDS - began))" 'cargo test'
}

s3_tests() {
  local checkout=() lake back
  if [ -n "${S3_TESTS:-}" ]; then
    checkout=(--s3-tests "$S3_TESTS")
  elif ! compgen -G "${XDG_CACHE_HOME:-$HOME/.cache}/shoal/s3-tests-*/.git" > /dev/null \
    && ! git ls-remote --exit-code "$S3_TESTS_URL" HEAD > /dev/null 2>&1; then
    skip "ceph/s3-tests through a node: $S3_TESTS_URL cannot be reached, and S3_TESTS names no checkout"
    return
  fi
  step 'ceph/s3-tests through three nodes that write everything back, at ceph' \
    tests/s3-tests/run.sh --lake ceph --write-back "${checkout[@]+"${checkout[@]}"}" &
  back=$!
  for lake in ceph minio; do
    step "ceph/s3-tests through a node, at $lake" \
      tests/s3-tests/run.sh --lake "$lake" "${checkout[@]+"${checkout[@]}"}"
  done
  for lake in ceph minio; do
    step "ceph/s3-tests through three nodes that pack everything, at $lake" \
      tests/s3-tests/run.sh --lake "$lake" --packed "${checkout[@]+"${checkout[@]}"}"
    step "ceph/s3-tests through three nodes that know no user, at $lake" \
      tests/s3-tests/run.sh --lake "$lake" --unknown --nodes 3 "${checkout[@]+"${checkout[@]}"}"
    step "ceph/s3-tests through three nodes that give temporary keys, at $lake" \
      tests/s3-tests/run.sh --lake "$lake" --sessions "${checkout[@]+"${checkout[@]}"}"
  done
  wait "$back"
}

# Clients at lakes, and published figures.
clients() {
  step 'real clients at real lakes' tests/real/run.sh
  step 'real clients at nodes that write back' tests/real/run.sh --write-back --lake versitygw
  step 'clients with roles' tests/roles/run.sh
  step 'clients with unknown keys' tests/unknown/run.sh
  step 'Spark and Hadoop at nodes that write back' tests/hadoop/run.sh
  step 'the Python client of admin ports, and its examples' clients/python/tests/run.sh
  step 'experiments, each with one seed and larger blocks' experiments/run.sh --quick
  s3_tests
}

demo() {
  step 'demo: three nodes read a sample cold and warm, and write one that survives its node' scripts/demo.sh "$SHOAL"
}

pages() {
  step 'the pages about how to do something, typed' tests/pages/run.sh
}

console() {
  step 'the console of three nodes in a browser' tests/console/run.sh
}

# One story of each kind, and a few checks of each client.
some_scripted_tests() {
  step 'some nodes that fail while clients read, in networks of their own' tests/net/run.sh "${SOME_STORIES[@]}"
  demo
  pages
  console
  step 'some checks of real clients at a real lake' tests/real/run.sh --quick --lake versitygw
  step 'some checks of real clients at nodes that write back' \
    tests/real/run.sh --quick --write-back --lake versitygw
  step 'the Python client of admin ports, and its examples' clients/python/tests/run.sh
  skip 'the other stories, lakes and clients, experiments, ceph/s3-tests, packages and images: ALL is not set'
}

all_scripted_tests() {
  # One story of the networks needs the whole machine, so nothing runs beside them.
  step 'nodes that fail while clients read, in networks of their own' tests/net/run.sh
  step 'tiers on real stores that lose disks while clients write' tests/tiers/run.sh
  step 'a rolling upgrade of nodes from one build to another, and back' tests/upgrade/run.sh
  demo
  pages
  console
  # The suite waits most of the time, so it runs beside the clients.
  step "versitygw's own suite through a node" tests/full-flow/run.sh &
  clients
  wait
  step 'packages, image, chart, wheels, alerts, dashboard' dist
}

# What operators install, made from nothing but the sources, twice.
dist() {
  DIST="$results/dist" scripts/dist/make.sh && DIST="$results/dist" REBUILD=1 scripts/dist/check.sh
}

scripted_tests() {
  local program missing=()
  for program in python3 curl; do
    command -v "$program" > /dev/null || missing+=("$program")
  done
  if [ "${#missing[@]}" -gt 0 ]; then
    skip "lakes, clients, networks, experiments, demo: ${missing[*]} is not installed"
  elif [ -n "${ALL:-}" ]; then
    all_scripted_tests
  else
    some_scripted_tests
  fi
}

# The tests of the directory start servers of Redis, and pass without them.
install_redis() {
  install_missing redis-server redis-server
  command -v redis-server > /dev/null || skip 'the directory in Redis: redis-server is not installed'
}

# The registry's tests and the suites that write into a tier start members of etcd, and pass without it.
install_etcd() {
  local program missing=()
  install_missing etcd etcd-server etcd-client
  for program in etcd etcdctl openssl; do
    type -P "$program" > /dev/null || missing+=("$program")
  done
  [ "${#missing[@]}" -eq 0 ] || skip "the registry in etcd, and tiers of several processes: ${missing[*]} is not installed"
}

# The tests of packs open them with other programs, and pass without one.
install_readers_of_zip() {
  local program
  install_missing unzip unzip
  for program in unzip python3 javac jar; do
    command -v "$program" > /dev/null || skip "packs opened by other programs: $program is not installed"
  done
}

install_etcd
install_redis
install_readers_of_zip
mapfile -t left_out < <(without_solver)
if [ "${#left_out[@]}" -gt 0 ]; then
  skip 'the planner, and plans from histories: cmake, a C++ compiler or libclang is not installed'
  export SHOAL_TESTS_WITHOUT_PLANNER=1
fi
cargo_tests ${QUICK:+--lib --bins}
if [ -n "${QUICK:-}" ]; then
  skip 'all but unit tests: QUICK is set'
elif [ ! -x "$SHOAL" ]; then
  printf 'FAILED: cargo has not built %s for its tests\n' "$SHOAL" | tee -a "$results/failed"
  outcome 0 1 0 'the binary'
elif ! need_room "${TMPDIR:-/tmp}" "$TESTS_GIB" 'lakes, clients, networks, experiments, demo' > "$results/room"; then
  repeat_failure 'room on the disk' "$results/room"
  outcome 0 1 0 'room on the disk'
else
  cat "$results/room"
  scripted_tests
fi

printf '\n'
sed 's/^/skipped: /' "$results/skipped"
sort -k 3nr "$results/outcomes" | head -n 10 | awk '{ $1 = $2 = ""; sub(/^ +/, ""); print "seconds: " $0 }'
cat "$results/failed"
read -r passed failed < <(awk '{ p += $1; f += $2 } END { print p + 0, f + 0 }' "$results/outcomes")
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
