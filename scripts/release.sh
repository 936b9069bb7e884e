#!/usr/bin/env bash
# Builds the binary to deploy, stripped, and its symbols beside it, where debuggers and profilers find them.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$HOME/.cache/shoal/target}"

cargo build --locked --release --package shoal
built="$CARGO_TARGET_DIR/release"
folder="$built/deploy"
mkdir -p "$folder"
objcopy --only-keep-debug "$built/shoal" "$folder/shoal.debug"
objcopy --strip-unneeded "$built/shoal" "$folder/shoal"
(cd "$folder" && objcopy --add-gnu-debuglink=shoal.debug shoal)
chmod -x "$folder/shoal.debug"
du -h --apparent-size "$folder/shoal" "$folder/shoal.debug"
