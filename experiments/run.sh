#!/usr/bin/env bash
# Runs all experiments of this folder, or the named ones, and writes the numbers and plots of their READMEs.
#
# usage: experiments/run.sh [--quick] [NAME...]
#
# --quick runs each with one seed and larger blocks to test that it still runs, and changes no committed file.
set -euo pipefail
cd "$(dirname "$0")"

quick=()
if [ "${1:-}" = --quick ]; then
  quick=(--quick)
  shift
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
fi
[ $# -gt 0 ] || set -- */

target=${CARGO_TARGET_DIR:-../target}
cargo build --release --locked --quiet --package shoal-lab
lab=$target/release/shoal-lab
# In the profile of the tests, in which it is optimized, so that the C++ of its solver is compiled once.
if [[ " $*" == *' netco-'* ]]; then
  # shellcheck source=scripts/packages.sh
  source ../scripts/packages.sh
  # shellcheck source=scripts/solver.sh
  source ../scripts/solver.sh
  if [ -n "$(without_solver)" ]; then
    printf 'skipped: experiments of the planner: cmake, a C++ compiler or libclang is not installed\n'
  else
    cargo build --locked --quiet --package shoal-planner --examples
  fi
fi

# Samples and full reports are megabytes, and come from the same run again; only the first variant, dynamic, moves its L1.
tidy() {
  rm -f "$1"/results.json "$1"/samples.csv "$1"/l1-[1-9]*.svg
}

for name in "$@"; do
  name=${name%/}
  # Not simulated: needs namespaces and an hour, and has a command of its own.
  if [ "$name" = testbed ]; then
    continue
  fi
  if [ -n "${scratch:-}" ]; then
    out=$scratch/$name
  else
    out=$name/results
  fi
  if [ -x "$name/run.sh" ]; then
    printf '== %s\n' "$name"
    "$name/run.sh" "$lab" "$out" "${quick[@]}"
    continue
  fi
  for experiment in "$name"/*.toml; do
    case "$experiment" in
      */figures.toml | */\*.toml) continue ;;
    esac
    printf '== %s\n' "$experiment"
    case "$experiment" in
      */EXPERIMENT.toml) folder=$out ;;
      *) folder=$out/$(basename "$experiment" .toml) ;;
    esac
    "$lab" simulate "$experiment" --out "$folder" "${quick[@]}"
    tidy "$folder"
  done
  if [ -z "${scratch:-}" ] && grep -q '<!-- numbers -->' "$name/README.md"; then
    python3 tables.py "$name/results/results.csv" "$name/README.md"
  fi
  if [ -z "${scratch:-}" ] && [ -e "$name/figures.toml" ]; then
    python3 figures.py "$name"
  fi
done
