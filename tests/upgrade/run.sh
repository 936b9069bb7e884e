#!/usr/bin/env bash
# A rolling upgrade of three nodes from one build to another, and back, while clients read and write; see --help.
# OLD=path/to/shoal is the program that the nodes begin with, OLD=v1.2 or another commit is built first; without it
# the last tag is built, and without a tag the nodes only restart.
# SHOAL=path/to/shoal is the program that replaces it; without it the node is built here.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=tests/real/environment.sh
source "$root/tests/real/environment.sh"
# shellcheck source=scripts/packages.sh
source "$root/scripts/packages.sh"

# build_commit COMMIT: prints the path of the program of a commit, which is built once.
build_commit() {
  local commit folder
  commit=$(git -C "$root" rev-parse --verify --quiet "$1^{commit}") \
    || { echo "OLD=$1 is neither a program nor a commit" >&2 && return 1; }
  folder="${XDG_CACHE_HOME:-$HOME/.cache}/shoal/builds/$commit"
  if [ ! -x "$folder/shoal" ]; then
    echo "building $1 ($commit) in $folder, once" >&2
    rm -rf "$folder"
    mkdir -p "$folder/source"
    git -C "$root" archive "$commit" | tar -x -C "$folder/source"
    CARGO_TARGET_DIR="$folder/target" cargo build --quiet --locked --manifest-path "$folder/source/Cargo.toml" \
      --bin shoal >&2
    mv "$folder/target/debug/shoal" "$folder/shoal"
    rm -rf "$folder/target" "$folder/source"
  fi
  echo "$folder/shoal"
}

for option in "$@"; do
  case "$option" in -h | --help) PYTHONPATH="$root/tests" exec python3 -m upgrade --help ;; esac
done
install_missing etcd etcd-server
new=${SHOAL:-$(build_shoal "$root" dev)}
last_tag=$(git -C "$root" describe --tags --abbrev=0 2> /dev/null || true)
if [ -x "${OLD:-}" ] && [ ! -d "${OLD:-}" ]; then
  old=$OLD
elif [ -n "${OLD:-$last_tag}" ]; then
  old=$(build_commit "${OLD:-$last_tag}")
else
  echo 'skipped: two builds: there is no tag, and OLD names no other build; one build takes its own place'
  old=$new
fi
PYTHONPATH="$root/tests" exec python3 -m upgrade --old "$old" --new "$new" "$@"
