#!/usr/bin/env bash
# Makes all that operators get, in DIST (default: dist): packages, an archive, an image, a Helm chart, wheels,
# the lists of contents, checksums and their signature. Lines with `skipped:` name what cannot be made here.
# BINARY=PROGRAM packs a program that exists instead of a build of its own, to work on what is around it.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=scripts/dist/environment.sh
source scripts/dist/environment.sh

rm -rf "$DIST" "${WORK:?}/bin" "$WORK/release"
mkdir -p "$DIST" "$WORK/bin"
if [ -n "${BINARY:-}" ]; then
  for program in "$BINARY" "$(dirname "$BINARY")/shoal-planner"; do
    [ ! -x "$program" ] || strip --strip-debug -o "$WORK/bin/$(basename "$program")" "$program"
  done
else
  FOLDER="$WORK/release" scripts/release.sh
  find "$WORK/release" -type f ! -name '*.debug' -exec cp {} "$WORK/bin" \;
  (cd "$WORK/release" && tar --create --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -- *.debug) \
    | gzip -6n > "$DIST/shoal-$VERSION-symbols-$ARCH.tar.gz"
fi
# The packages contain the first, and the checksums are those of everything.
for part in contents packages image chart wheels sign; do
  printf '== %s\n' "$part"
  "scripts/dist/$part.sh"
done
ls -l "$DIST"
