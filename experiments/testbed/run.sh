#!/usr/bin/env bash
# Measures a live cluster in networks with links of the published ratios; see --help. Results go to results/.
# SHOAL=path/to/shoal measures a binary that exists, with shoal-lab beside it; without it a release build is made.
#
# usage: experiments/testbed/run.sh [--quick] [--rounds N] [--lake NAME] [ROW...]
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=tests/real/environment.sh
source "$root/tests/real/environment.sh"
# shellcheck source=tests/net/isolated.sh
source "$root/tests/net/isolated.sh"

skip_without_isolation
if ! command -v wrk > /dev/null; then
  echo "skipped: wrk is not installed"
  exit 0
fi
binary=${SHOAL:-$(build_shoal "$root" release)}
if [ -z "${SHOAL:-}" ]; then
  cargo build --quiet --manifest-path "$root/Cargo.toml" --release --package shoal-lab
fi
export PYTHONPATH="$root/experiments:$root/tests:$root"
python3 -m net.fetch minio "$@" || exit 0
in_scratch python3 -m testbed --shoal "$binary" "$@"
