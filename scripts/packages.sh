# Debian's packages of programs that tests need. Sourced by scripts that run on a machine of their own.
# shellcheck shell=bash

# install_packages PACKAGE...: installs packages where that is possible. Otherwise the caller finds something
# missing, and stderr says why.
install_packages() {
  local told attempt
  if [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then
    return
  fi
  for attempt in 1 2 3; do
    # RUNLEVEL keeps a package from starting a service. Another script may hold the lock.
    told=$(RUNLEVEL=1 apt-get install -q -y --no-install-recommends -o DPkg::Lock::Timeout=300 "$@" 2>&1) && return
    # The lists of packages may be old, or a mirror may have failed once.
    [ "$attempt" = 3 ] || apt-get update -q > /dev/null 2>&1 || true
  done
  printf 'could not install %s: %s\n' "$*" "$(tail -n 1 <<< "$told")" >&2
}

# install_missing PROGRAM PACKAGE...: installs the packages of a program that is missing. A function of that
# name is no program.
install_missing() {
  PATH="$PATH:/usr/sbin:/sbin" type -P "$1" > /dev/null || install_packages "${@:2}"
}
