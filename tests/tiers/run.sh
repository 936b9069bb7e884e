#!/usr/bin/env bash
# Tiers on real stores, which lose disks while clients write; see --help.
# SHOAL=path/to/shoal tests a binary that exists, STORE_TESTS=path names the tests of crates/shoal-writeback; without
# them both are built here.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=tests/real/environment.sh
source "$root/tests/real/environment.sh"

# Prints the path of the program that has the tests of shoal-writeback.
build_store_tests() {
  cargo test --quiet --manifest-path "$root/Cargo.toml" --package shoal-writeback --lib --no-run --message-format=json |
    python3 -c 'import json, sys
print(*[found for line in sys.stdin if (found := json.loads(line).get("executable"))], sep="\n")'
}

binary=${SHOAL:-$(build_shoal "$root" dev)}
tests=${STORE_TESTS:-$(build_store_tests)}
PYTHONPATH="$root/tests" exec python3 -m tiers --shoal "$binary" --store-tests "$tests" "$@"
