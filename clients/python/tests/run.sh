#!/usr/bin/env bash
# The Python client: its types, its fields against the OpenAPI document, and stories at real nodes.
# SHOAL=path/to/shoal tests a binary that exists; without it the node is built here.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
# shellcheck source=tests/real/environment.sh
source "$root/tests/real/environment.sh"

python=$(virtual_environment python-client "$here/requirements.txt")
SHOAL=${SHOAL:-$(build_shoal "$root" dev)}
export SHOAL
installed=$(mktemp -d)
trap 'rm -rf "$installed"' EXIT

# As users install it. What is tested is the installed package: a file that it lacks fails the tests.
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --target "$installed" \
  "$root/clients/python"
[ -f "$installed/shoal/py.typed" ] || { echo "error: the package lacks py.typed"; exit 1; }
cd "$here/.."
export PYTHONPATH="$installed:$here/.." PYTHONDONTWRITEBYTECODE=1
"$python" -W error::ResourceWarning -m unittest "$@"

# Other Pythons that the package supports, where this machine has them.
others=()
own=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
for version in 3.9 3.10 3.11 3.12 3.13 3.14; do
  if [ "$version" != "$own" ] && "python$version" -c '' 2> /dev/null; then
    others+=("$version")
    "python$version" -m unittest tests.test_client tests.test_operations tests.test_hints tests.test_dags
  fi
done
printf 'passed also with Python %s\n' "${others[*]:-of no other version}"
