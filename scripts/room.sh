# The room on disks that tests need. Sourced by test.sh.
# shellcheck shell=bash

# free_gib DIRECTORY: prints the whole GiB that are free there.
free_gib() {
  printf '%d\n' "$(($(df --output=avail --block-size=1M "$1" | tail -n 1) / 1024))"
}

# need_room DIRECTORY GIB PURPOSE: fails with advice if less is free. What the compiler keeps for its next run
# is removed first, if it is on the same disk: it comes back by itself.
need_room() {
  local directory=$1 gib=$2 purpose=$3 kept=$CARGO_TARGET_DIR/debug/incremental free
  free=$(free_gib "$directory")
  if [ "$free" -lt "$gib" ] && [ "$(stat -c %d "$kept" 2> /dev/null)" = "$(stat -c %d "$directory")" ]; then
    printf 'removing %s: only %s GiB are free\n' "$kept" "$free"
    rm -rf "$kept"
    free=$(free_gib "$directory")
  fi
  [ "$free" -lt "$gib" ] || return 0
  printf '%s need %s GiB in %s, and %s GiB are free\n' "$purpose" "$gib" "$directory" "$free"
  printf '%s has the builds of all checkouts, which can be made again. For another disk: TMPDIR=... make test\n' \
    "$CARGO_TARGET_DIR"
  return 1
}
