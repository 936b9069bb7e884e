#!/usr/bin/env bash
# The programs are static and stripped, run where there is nothing else, and are the same when they are built again,
# in another folder (REBUILD=1).
set -euo pipefail
cd "$(dirname "$0")/../../.."
# shellcheck source=scripts/dist/environment.sh
source scripts/dist/environment.sh
if [ -n "${BINARY:-}" ]; then
  echo 'skipped: static and equal programs: BINARY names one that exists'
  exit
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for program in "$WORK"/bin/*; do
  ! readelf --program-headers "$program" | grep INTERP || fail "$program needs a loader"
  ! readelf --sections "$program" | grep -E '\.(symtab|debug_info)' || fail "$program is not stripped"
  # The paths of the builder are of no use to others. Of a home, the folders of tools begin with a dot.
  ! grep -aoF -e "$PWD/" -e "$CARGO_TARGET_DIR/" -e "$HOME/." "$program" | sort | uniq -c | grep . || fail "$program names paths of this machine"
done
if [ "$(id -u)" = 0 ]; then
  cp "$WORK/bin/shoal" "$work"
  [ "$(chroot "$work" /shoal --version)" = "shoal $VERSION" ] || fail 'the program does not run in an empty folder'
  # It looks up names there, too: first in no file at all, then in one.
  mkdir "$work/etc"
  printf 'hosts: mdns files\n' > "$work/etc/nsswitch.conf"
  printf '127.0.0.1 lake.example.org\n' > "$work/etc/hosts"
  chroot "$work" /shoal status --node http://lake.example.org:9 > "$work/log" 2>&1 || true
  grep -qi 'refused' "$work/log" || fail "the program does not find a name of /etc/hosts: $(cat "$work/log")"
else
  echo 'skipped: the program in an empty folder: only root can change the root'
fi

if [ -z "${REBUILD:-}" ]; then
  echo 'skipped: a second build, equal to the first: REBUILD is not set'
  exit
fi
# The same sources under another path, compiled into another folder.
mkdir "$work/sources"
git ls-files --cached --others --exclude-standard -z | xargs -0 cp --parents --no-dereference -t "$work/sources"
SOURCE_DATE_EPOCH="$SOURCE_DATE_EPOCH" CARGO_TARGET_DIR="$work/target" FOLDER="$work/again" "$work/sources/scripts/release.sh" > "$work/log" 2>&1 \
  || fail "$(tail -n 20 "$work/log")"
for file in "$WORK"/release/*; do
  cmp "$file" "$work/again/$(basename "$file")" || fail "another build has another $(basename "$file")"
done
echo 'a second build is equal'
