#!/usr/bin/env bash
# Builds the programs to deploy, stripped, and their symbols beside them, where debuggers and profilers find
# them.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/packages.sh
source scripts/packages.sh
# shellcheck source=scripts/solver.sh
source scripts/solver.sh
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$HOME/.cache/shoal/target}"

programs=(shoal)
if [ -z "$(without_solver)" ]; then
  programs+=(shoal-planner)
else
  echo 'left out: shoal-planner, which needs a C++ compiler, CMake and libclang to be built'
fi
built="$CARGO_TARGET_DIR/release"
folder="$built/deploy"
mkdir -p "$folder"
for program in "${programs[@]}"; do
  cargo build --locked --release --package "$program"
  objcopy --only-keep-debug "$built/$program" "$folder/$program.debug"
  objcopy --strip-unneeded "$built/$program" "$folder/$program"
  (cd "$folder" && objcopy --add-gnu-debuglink="$program.debug" "$program")
  chmod -x "$folder/$program.debug"
done
du -h --apparent-size "$folder"/*
