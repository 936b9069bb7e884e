#!/bin/sh
# Fuzzes every target for so many seconds (60 if not said): fuzz/run.sh [seconds] [target...]
#
# A stable compiler suffices: LLVM's coverage pass is asked for by -C flags, and --target keeps it away from build
# scripts. Findings go to fuzz/artifacts/<target>, what libFuzzer learns to fuzz/target/corpus/<target>: the committed
# corpus stays small.
set -eu
cd "$(dirname "$0")"

seconds=${1:-60}
[ $# -gt 0 ] && shift
host=$(rustc -vV | sed -n 's/^host: //p')
target_dir=${CARGO_TARGET_DIR:-target}
# shellcheck disable=SC2046 # names of targets have no spaces
[ $# -gt 0 ] || set -- $(ls fuzz_targets | sed 's/\.rs$//')

export RUSTFLAGS="--cfg fuzzing \
-Cpasses=sancov-module \
-Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
-Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares"
# The targets of the protocol need no node, and build in a fraction of the time.
features=
case "$*" in *node* | *dirty* | *block*) features=--features=node ;; esac
# shellcheck disable=SC2086 # no feature is no argument
cargo build --locked --bins --target "$host" $features

for target in "$@"; do
    mkdir -p "artifacts/$target" "$target_dir/corpus/$target"
    "$target_dir/$host/debug/$target" \
        -max_total_time="$seconds" -max_len=4096 -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="artifacts/$target/" \
        "$target_dir/corpus/$target" "corpus/$target"
done
