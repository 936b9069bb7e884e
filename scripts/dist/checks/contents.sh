#!/usr/bin/env bash
# The list of contents has every crate that cargo links, each with a licence, and the text of each is there.
set -euo pipefail
cd "$(dirname "$0")/../../.."
# shellcheck source=scripts/dist/environment.sh
source scripts/dist/environment.sh
made "$DIST/shoal.cdx.json" 'the list of contents' || exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
target=$(rustc -vV | sed -n 's/^host: //p')

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
  [ -z "$missing" ] || fail "the list of $program lacks $missing"
  if made "$DIST/third-party.txt" 'the texts of licences'; then
    grep -v '^shoal' "$work/linked" | while read -r crate; do
      grep -qF -e "$crate, " "$DIST/third-party.txt" || grep -qxF "$crate" "$DIST/third-party.txt" \
        || fail "the text of the licence of $crate is missing"
    done
  fi
  echo "$program: $(wc -l < "$work/linked") crates"
done
