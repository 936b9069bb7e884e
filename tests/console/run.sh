#!/usr/bin/env bash
# The console of a cluster in a real browser; see --help. Needs chromium.
# SHOAL=path/to/shoal tests a binary that exists; without it the nodes are built here.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=tests/real/environment.sh
source "$root/tests/real/environment.sh"
# shellcheck source=scripts/packages.sh
source "$root/scripts/packages.sh"

install_missing chromium chromium fonts-dejavu-core
if ! command -v chromium > /dev/null; then
  echo "skipped: chromium is not installed"
  exit 0
fi
python=$(virtual_environment real "$root/tests/real/requirements.txt")
binary=${SHOAL:-$(build_shoal "$root" dev)}
PYTHONPATH="$root/tests" exec "$python" -m console --shoal "$binary" "$@"
