#!/usr/bin/env bash
# The list of contents has every crate that cargo links, each with a licence; the signature refuses an altered byte.
set -euo pipefail
cd "$(dirname "$0")/../../.."
# shellcheck source=scripts/dist/environment.sh
source scripts/dist/environment.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
target=$(rustc -vV | sed -n 's/^host: //p')

if [ -e "$DIST/shoal.cdx.json" ]; then
  for program in shoal shoal-planner; do
    cargo tree --locked --package "$program" --edges normal,no-proc-macro --target "$target" --prefix none --format '{p}' \
      | awk 'NF > 1 { sub(/^v/, "", $2); print $1 " " $2 }' | grep -v "^$program " | LC_ALL=C sort -u > "$work/linked"
    python3 - "$DIST/$program.cdx.json" > "$work/listed" << 'PYTHON'
import json
import sys

for component in json.load(open(sys.argv[1]))["components"]:
    if not component.get("licenses"):
        sys.exit(f"error: {component['name']} has no licence in {sys.argv[1]}")
    print(component["name"], component["version"])
PYTHON
    missing=$(LC_ALL=C sort -u "$work/listed" | LC_ALL=C comm -23 "$work/linked" -)
    [ -z "$missing" ] || fail "the SBOM of $program lacks $missing"
    echo "$program: $(wc -l < "$work/linked") crates"
  done
  grep -q '^tokio ' "$DIST/THIRD-PARTY.txt" || fail 'the licences of third parties lack that of tokio'
else
  echo 'skipped: SBOM and licences: the tools that make them could not be installed'
fi

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
