# shellcheck shell=bash
# What the planner's solver needs to be compiled: a C++ compiler, CMake, and libclang, with which its bindings
# are made. Sourced by lint.sh, test.sh and experiments/run.sh, after packages.sh.

# Returns whether libclang can be loaded. (libclang-cpp is another library.)
has_libclang() {
  # A grep that ended at the first match would kill ldconfig, which counts as a failure under pipefail.
  [ -n "${LIBCLANG_PATH:-}" ] || {
    ldconfig -p
    printf '%s\n' /usr/lib/llvm-*/lib/libclang*.so*
  } 2> /dev/null | grep -E 'libclang[-.0-9]*\.so' > /dev/null
}

# Installs what is missing, where that is possible. Prints `--exclude shoal-planner` where it is not.
without_solver() {
  install_missing cmake cmake
  install_missing c++ g++
  has_libclang || install_packages libclang-dev
  if ! command -v cmake > /dev/null || ! command -v c++ > /dev/null || ! has_libclang; then
    printf '%s\n' --exclude shoal-planner
  fi
}
