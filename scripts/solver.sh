# shellcheck shell=bash
# What the planner's solver needs to be compiled: a C++ compiler, CMake, and libclang, with which its bindings
# are made. Sourced by lint.sh, test.sh and experiments/run.sh.

# Returns whether libclang can be loaded.
has_libclang() {
  [ -n "${LIBCLANG_PATH:-}" ] || ldconfig -p 2> /dev/null | grep -q 'libclang[-.0-9]*\.so' \
    || compgen -G '/usr/lib/llvm-*/lib/libclang*.so*' > /dev/null
}

# Installs what is missing, where that is possible. Prints `--exclude shoal-planner` where it is not.
without_solver() {
  if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
    command -v cmake > /dev/null || apt-get install -q -y --no-install-recommends cmake > /dev/null 2>&1 || true
    command -v g++ > /dev/null || apt-get install -q -y --no-install-recommends g++ > /dev/null 2>&1 || true
    has_libclang || apt-get install -q -y --no-install-recommends libclang-dev > /dev/null 2>&1 || true
  fi
  if ! command -v cmake > /dev/null || ! command -v c++ > /dev/null || ! has_libclang; then
    printf '%s\n' --exclude shoal-planner
  fi
}
