#!/usr/bin/env bash
# Has cargo compile the sources of this checkout if another one was compiled last. Checkouts share their builds,
# and cargo tells their sources apart by nothing but the times of the files.
set -euo pipefail
cd "$(dirname "$0")/.."
last="$CARGO_TARGET_DIR/checkout"
[ "$(cat "$last" 2> /dev/null)" != "$PWD" ] || exit 0
find crates -name '*.rs' -exec touch {} +
mkdir -p "$CARGO_TARGET_DIR"
printf '%s\n' "$PWD" > "$last"
