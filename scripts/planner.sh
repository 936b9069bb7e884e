#!/usr/bin/env bash
# Builds the planner of `shoal plan`, beside the binary of the same profile, where that one finds it. Installs a
# C++ compiler, CMake and libclang, with which its solver is built, where they are missing and that is possible.
# PROFILE: local (the default) or release.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/packages.sh
. scripts/packages.sh
# shellcheck source=scripts/solver.sh
. scripts/solver.sh
profile=${PROFILE:-local}
if [ -n "$(without_solver)" ]; then
  echo "error: the planner needs a C++ compiler, CMake and libclang, and not all of them are here" >&2
  echo "hint: install them, on Debian: apt-get install g++ cmake libclang-dev" >&2
  exit 1
fi
cargo build --locked --profile "$profile" --package shoal-planner
echo "built $CARGO_TARGET_DIR/$profile/shoal-planner: shoal finds it beside its own program, or on the PATH"
