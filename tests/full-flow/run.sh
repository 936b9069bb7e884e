#!/usr/bin/env bash
# versitygw's own suite on versitygw and through a node; see --help. SHOAL=path/to/shoal tests a binary that exists.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=tests/real/environment.sh
source "$root/tests/real/environment.sh"

binary=${SHOAL:-$(build_shoal "$root" dev)}
exec python3 "$here/compare.py" --shoal "$binary" "$@"
