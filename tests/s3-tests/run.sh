#!/usr/bin/env bash
# ceph/s3-tests on a lake and through a node; see --help. SHOAL=path/to/shoal tests a binary that exists.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=tests/real/environment.sh
source "$root/tests/real/environment.sh"

python=$(virtual_environment s3-tests "$here/requirements.txt")
binary=${SHOAL:-$(build_shoal "$root" dev)}
exec "$python" "$here/compare.py" --shoal "$binary" "$@"
