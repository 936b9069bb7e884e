#!/usr/bin/env bash
# Clients whose keys no node knows, at nodes that leave the judgement to the lake; see --help.
# SHOAL=path/to/shoal tests a binary that exists; without it the nodes are built here.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=tests/real/environment.sh
source "$root/tests/real/environment.sh"

python=$(virtual_environment unknown "$here/requirements.txt")
clients=$(virtual_environment sdks "$root/tests/sdks/requirements.txt")
binary=${SHOAL:-$(build_shoal "$root" dev)}
PYTHONPATH="$root/tests" exec "$python" -m unknown --shoal "$binary" --clients "$clients" "$@"
