#!/usr/bin/env bash
# The checksums are those of the files, all of them, and the signature refuses an altered byte.
set -euo pipefail
cd "$(dirname "$0")/../../.."
# shellcheck source=scripts/dist/environment.sh
source scripts/dist/environment.sh
made "$DIST/SHA256SUMS" 'checksums and their signature' || exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cd "$DIST"
sha256sum --check --quiet SHA256SUMS
listed=$(cut -d ' ' -f 3- SHA256SUMS | LC_ALL=C sort)
there=$(find . -type f ! -name 'SHA256SUMS*' ! -name shoal.pub -printf '%P\n' | LC_ALL=C sort)
[ "$listed" = "$there" ] || fail 'SHA256SUMS does not list all files'
has minisign minisign 'the signature' || exit 0
if [ ! -e shoal.pub ]; then
  echo 'skipped: the signature: shoal.pub, the key of the maintainers, is elsewhere'
  exit
fi
minisign -V -q -p shoal.pub -m SHA256SUMS
cp SHA256SUMS SHA256SUMS.minisig shoal.pub "$work"
cd "$work"
sed -i '1s/^./x/' SHA256SUMS
if minisign -V -q -p shoal.pub -m SHA256SUMS 2> /dev/null; then
  fail 'the signature of an altered list is accepted'
fi
