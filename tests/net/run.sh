#!/usr/bin/env bash
# Nodes that are killed, frozen, cut off or lose packets while clients read, in networks of their own; see --help.
# SHOAL=path/to/shoal tests a binary that exists; without it the node is built here.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=tests/real/environment.sh
source "$root/tests/real/environment.sh"
# shellcheck source=scripts/packages.sh
source "$root/scripts/packages.sh"
# shellcheck source=tests/net/isolated.sh
source "$here/isolated.sh"

install_missing nft nftables
install_missing faketime faketime
skip_without_isolation
binary=${SHOAL:-$(build_shoal "$root" dev)}
export PYTHONPATH="$root/tests"
# Tests the checker first: a checker that accepts everything proves nothing.
python3 -m unittest -q net.test_linearizability
python3 -m net.fetch versitygw "$@" || exit 0
in_scratch python3 -m net --shoal "$binary" "$@"
