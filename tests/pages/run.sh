#!/usr/bin/env bash
# Types the commands of the pages in docs/how-to, each page on a machine of its own as far as it sees; see --help.
# Arguments are pages, such as tasks; without them all are typed.
# SHOAL=path/to/shoal tests a binary that exists; without it the node is built here.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=tests/real/environment.sh
source "$root/tests/real/environment.sh"
# shellcheck source=scripts/packages.sh
source "$root/scripts/packages.sh"
# shellcheck source=tests/net/isolated.sh
source "$root/tests/net/isolated.sh"

export PYTHONPATH="$root/tests"
for option in "$@"; do
  case "$option" in -h | --help) exec python3 -m pages --help ;; esac
done
install_missing jq jq
install_missing dig dnsutils
install_missing etcdctl etcd-server etcd-client
install_missing redis-cli redis-server
skip_without_isolation
# A runner that takes every line for right proves nothing.
python3 -m unittest -q pages.test_page
binary=${SHOAL:-$(build_shoal "$root" dev)}
# One of its packages is aws-cli.
python=$(virtual_environment real "$root/tests/real/requirements.txt")
PATH="$PATH:$(dirname "$python")"

pages=("$@")
if [ "$#" -eq 0 ]; then
  for page in $(cd "$root/docs/how-to" && grep -lF '```console' ./*.md); do pages+=("$(basename "$page" .md)"); done
fi
failed=()
for page in "${pages[@]}"; do
  # A shell of its own, as `in_scratch` cleans up when its shell ends.
  (in_scratch python3 -m pages --shoal "$binary" "$page") || failed+=("$page")
done
echo "${#pages[@]} pages typed, ${#failed[@]} of them wrong${failed[*]:+: ${failed[*]}}"
[ "${#failed[@]}" -eq 0 ]
