#!/usr/bin/env bash
# Clients beside prefetch and the cleaner on a metered link; see --help. SHOAL=path/to/shoal measures a binary that
# exists; without it a release build is made.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
# shellcheck source=tests/real/environment.sh
source "$root/tests/real/environment.sh"
# shellcheck source=tests/net/isolated.sh
source "$root/tests/net/isolated.sh"

skip_without_isolation
binary=${SHOAL:-$(build_shoal "$root" release)}
export PYTHONPATH="$root:$root/tests"
python3 -m net.fetch versitygw "$@" || exit 0
cd "$root"
in_scratch python3 -m bench.link --shoal "$binary" "$@"
