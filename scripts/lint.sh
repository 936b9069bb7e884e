#!/usr/bin/env bash
# Format, clippy, links in comments, dependencies, layers, tidiness. Every check runs, then the first failure counts.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$HOME/.cache/shoal/target}"

# shellcheck source=scripts/packages.sh
source scripts/packages.sh
# shellcheck source=scripts/solver.sh
source scripts/solver.sh

DENY_VERSION=0.20.2
tools="$HOME/.cache/shoal/tools"
failures=()

check() {
  local name=$1
  shift
  printf '== %s\n' "$name"
  "$@" || failures+=("$name")
}

# The version matters: another one may know other licences and another file format.
install_deny() {
  if [ "$("$tools/bin/cargo-deny" --version 2> /dev/null)" != "cargo-deny $DENY_VERSION" ]; then
    printf 'installing cargo-deny %s into %s\n' "$DENY_VERSION" "$tools"
    # Not into our target directory: it is no part of this workspace.
    env -u CARGO_TARGET_DIR cargo install --locked --quiet --root "$tools" --version "$DENY_VERSION" cargo-deny
  fi
}

deny() {
  install_deny || return
  local deny="$tools/bin/cargo-deny"
  if "$deny" --log-level error fetch db > /dev/null 2>&1; then
    "$deny" --log-level error check
  else
    printf 'NOT CHECKED: advisories, as their database cannot be fetched from here\n'
    "$deny" --log-level error check bans licenses sources
  fi
}

# The fuzz targets are a workspace of their own, with dependencies that only they need.
fuzz_lock() {
  cargo metadata --manifest-path fuzz/Cargo.toml --locked --quiet --format-version 1 > /dev/null
}

# Builds the documentation for developers, in which links to private items work.
docs() {
  RUSTDOCFLAGS='-D warnings -A rustdoc::private_intra_doc_links' \
    cargo doc --workspace "${left_out[@]}" --no-deps --document-private-items --locked --quiet
}

# Runs a check that is written in Python.
scripted() {
  if command -v python3 > /dev/null; then
    python3 "scripts/$1.py"
  else
    printf 'NOT CHECKED: %s, as python3 is not installed\n' "$1"
  fi
}

mapfile -t left_out < <(without_solver)
[ "${#left_out[@]}" -eq 0 ] || printf 'NOT CHECKED: shoal-planner, as cmake, a C++ compiler or libclang is not installed\n'
check 'cargo fmt' cargo fmt --all --check -- --files-with-diff
check 'cargo clippy' cargo clippy --workspace "${left_out[@]}" --all-targets --locked -- -D warnings
check 'cargo doc' docs
check 'cargo deny' deny
check 'lock file of fuzz/' fuzz_lock
check 'layers' scripted layers
check 'unused dependencies' scripted dependencies
check 'tidy' scripts/tidy.sh

if [ "${#failures[@]}" -gt 0 ]; then
  printf 'lint failed: %s\n' "${failures[*]}"
  exit 1
fi
printf 'lint passed\n'
