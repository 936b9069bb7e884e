# shellcheck shell=bash
# The tools that make and check what is deployed, in the versions that this repository is made with. Sourced by
# the scripts beside it. None is needed to build or to run Shoal.

TOOLS="$HOME/.cache/shoal/tools"
NFPM=github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.48.0
HELM=helm.sh/helm/v3/cmd/helm@v3.22.0
HELM_UNITTEST=github.com/helm-unittest/helm-unittest/cmd/untt@v1.1.2
KUBECTL_VALIDATE=sigs.k8s.io/kubectl-validate@v0.0.4
CYCLONEDX=0.5.9
ABOUT=0.9.3

# go_tool MODULE@VERSION: installs a program of Go unless it is there in this version. Prints its path.
go_tool() {
  local module=$1 name folder log
  name=$(basename "${module%@*}")
  folder="$TOOLS/go-$name-${module##*@}"
  if [ ! -x "$folder/$name" ]; then
    command -v go > /dev/null || { echo "$name: go is not installed" >&2 && return 1; }
    log=$(mktemp)
    if ! GOBIN="$folder" GOFLAGS=-mod=mod go install "$module" > "$log" 2>&1; then
      echo "$name: $(tail -n 1 "$log")" >&2
      rm "$log"
      return 1
    fi
    rm "$log"
  fi
  echo "$folder/$name"
}

# cargo_tool NAME VERSION: the same for a program of Rust.
cargo_tool() {
  local folder="$TOOLS/$1-$2" log
  if [ ! -x "$folder/bin/$1" ]; then
    log=$(mktemp)
    # Not into our target directory: it is no part of this workspace.
    if ! env -u CARGO_TARGET_DIR -u CARGO_ENCODED_RUSTFLAGS \
      cargo install --locked --quiet --root "$folder" --version "$2" "$1" > "$log" 2>&1; then
      echo "$1: $(tail -n 1 "$log")" >&2
      rm "$log"
      return 1
    fi
    rm "$log"
  fi
  echo "$folder/bin/$1"
}
