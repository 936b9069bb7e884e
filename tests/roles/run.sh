#!/usr/bin/env bash
# Clients with temporary keys of roles, which a lake's STS gives them by way of nodes; see --help.
# SHOAL=path/to/shoal tests a binary that exists; without it the nodes are built here.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=tests/real/environment.sh
source "$root/tests/real/environment.sh"

python=$(virtual_environment roles "$here/requirements.txt")
clients=$(virtual_environment sdks "$root/tests/sdks/requirements.txt")
binary=${SHOAL:-$(build_shoal "$root" dev)}
PYTHONPATH="$root/tests" exec "$python" -m roles --shoal "$binary" --clients "$clients" "$@"
