#!/usr/bin/env bash
# Hot reads against nginx and beside Varnish, cold reads against the lake, writes through the cache against those around it; see --help. Results go to bench/results/<date>.md.
# SHOAL=path/to/shoal measures a binary that exists; without it a release build is made.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
# shellcheck source=tests/real/environment.sh
source "$root/tests/real/environment.sh"

missing=()
for program in nginx varnishd wrk; do
  package=${program/nginx/nginx-light}
  PATH="$PATH:/usr/sbin" command -v "$program" >/dev/null || missing+=("${package/varnishd/varnish}")
done
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "missing: ${missing[*]}; installing them needs apt and root" >&2
    exit 1
  fi
  apt-get install -q -y --no-install-recommends "${missing[@]}" >&2
fi

binary=${SHOAL:-$(build_shoal "$root" release)}
cd "$root"
PYTHONPATH="$root:$root/tests" exec python3 -m bench --shoal "$binary" "$@"
