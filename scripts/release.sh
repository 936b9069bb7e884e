#!/usr/bin/env bash
# Builds the programs to deploy: static and stripped, with their symbols beside them, where debuggers and
# profilers find them. The place and the time of the build are kept out of them (scripts/dist/checks/programs.sh).
# FOLDER=DIR gets the programs; without it they are in a folder of the compiled code, and the last line names it.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/packages.sh
source scripts/packages.sh
# shellcheck source=scripts/solver.sh
source scripts/solver.sh
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$HOME/.cache/shoal/target}"

# Naming the target keeps these flags from build scripts and macros, which cannot be static.
target=$(rustc -vV | sed -n 's/^host: //p')
places=(
  "$PWD=/shoal"
  "$CARGO_TARGET_DIR=/target"
  "${CARGO_HOME:-$HOME/.cargo}=/cargo"
  "$(rustc --print sysroot)=/rust"
)
flags=(-C target-feature=+crt-static)
c_flags=()
for place in "${places[@]}"; do
  flags+=("--remap-path-prefix=$place")
  c_flags+=("-ffile-prefix-map=$place")
done
export CARGO_ENCODED_RUSTFLAGS CFLAGS="${c_flags[*]}" CXXFLAGS="${c_flags[*]}"
CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f' && printf '%s' "${flags[*]}")
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2> /dev/null || echo 0)}
export SOURCE_DATE_EPOCH
# What the compiler keeps for changes would number the parts of the program in another order.
export CARGO_INCREMENTAL=0

programs=(shoal)
if [ -z "$(without_solver)" ]; then
  programs+=(shoal-planner)
else
  echo 'left out: shoal-planner, which needs a C++ compiler, CMake and libclang to be built'
fi
built="$CARGO_TARGET_DIR/$target/release"
folder="${FOLDER:-$built/deploy}"
mkdir -p "$folder"
# The part of HiGHS that is a shared library elsewhere.
export "CMAKE_TOOLCHAIN_FILE_${target//-/_}=$PWD/scripts/static-highs.cmake"
for program in "${programs[@]}"; do
  link=()
  [ "$program" != shoal-planner ] || link=(-C link-arg=-lhighs_extras)
  cargo rustc --locked --release --target "$target" --package "$program" --bin "$program" -- "${link[@]}"
  objcopy --only-keep-debug "$built/$program" "$folder/$program.debug"
  objcopy --strip-unneeded "$built/$program" "$folder/$program"
  (cd "$folder" && objcopy --add-gnu-debuglink="$program.debug" "$program")
  chmod -x "$folder/$program.debug"
done
du -h --apparent-size "$folder"/*
echo "$folder"
