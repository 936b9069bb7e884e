#!/usr/bin/env bash
# Measures the ways to cooperate on four live nodes, and writes the table into the pages that show it: live.sh [--quick].
# SHOAL=path/to/shoal measures a binary that exists; without it a release build is made.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=tests/real/environment.sh
source "$root/tests/real/environment.sh"
# shellcheck source=tests/net/isolated.sh
source "$root/tests/net/isolated.sh"

skip_without_isolation
binary=${SHOAL:-$(build_shoal "$root" release)}
export PYTHONPATH="$root/experiments:$root/tests:$root"
python3 -m net.fetch minio || exit 0
in_scratch python3 "$here/live.py" --shoal "$binary" "$@"
