#!/usr/bin/env bash
# Real clients against real lakes, directly and through a node; see --help.
# SHOAL=path/to/shoal tests a binary that exists; without it the node is built here.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=tests/real/environment.sh
source "$here/environment.sh"

python=$(virtual_environment real "$here/requirements.txt")
binary=${SHOAL:-$(build_shoal "$root" dev)}
PYTHONPATH="$root/tests" exec "$python" -m real --shoal "$binary" "$@"
