#!/usr/bin/env bash
# Lists the checksums of all that was made, and signs the list with minisign. SIGNING_KEY names the secret key of the
# maintainers; without it a key is made that proves nothing but that signing works.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=scripts/dist/environment.sh
source scripts/dist/environment.sh
(cd "$DIST" && rm -f SHA256SUMS* shoal.pub && find . -type f -printf '%P\n' | LC_ALL=C sort | xargs -d '\n' sha256sum > "$WORK/SHA256SUMS")
mv "$WORK/SHA256SUMS" "$DIST"
has minisign minisign 'the signature' || exit 0
key=${SIGNING_KEY:-$WORK/trial.key}
if [ -z "${SIGNING_KEY:-}" ]; then
  [ -e "$key" ] || minisign -G -W -f -s "$key" -p "$WORK/trial.pub" > /dev/null
  cp "$WORK/trial.pub" "$DIST/shoal.pub"
  echo 'signed with a key for trials: SIGNING_KEY names none' >&2
fi
minisign -S -s "$key" -m "$DIST/SHA256SUMS" -t "shoal $VERSION" > /dev/null
