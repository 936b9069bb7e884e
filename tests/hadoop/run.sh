#!/usr/bin/env bash
# Spark and Hadoop's S3A at a lake and at nodes that write back; see --help.
# SHOAL=path/to/shoal tests a binary that exists; without it the nodes are built here.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=tests/real/environment.sh
source "$root/tests/real/environment.sh"

for program in java javac etcd; do
  if ! command -v "$program" > /dev/null; then
    echo "skipped: $program is not installed"
    exit 0
  fi
done
if ! python=$(virtual_environment hadoop "$here/requirements.txt"); then
  echo "skipped: PySpark cannot be installed"
  exit 0
fi
binary=${SHOAL:-$(build_shoal "$root" dev)}
PYTHONPATH="$root/tests" exec "$python" -m hadoop --shoal "$binary" "$@"
