# shellcheck shell=bash
# The tools that make and check what is deployed, in the versions that this repository is made with. Sourced by
# the scripts beside it. None is needed to build or to run Shoal.

export TOOLS="$HOME/.cache/shoal/tools"
export NFPM="github.com/goreleaser/nfpm/v2@v2.45.2 ./cmd/nfpm"
export HELM="helm.sh/helm/v3@v3.22.0 ./cmd/helm"
export HELM_UNITTEST="github.com/helm-unittest/helm-unittest@v1.1.2 ./cmd/helm-unittest"
export KUBECTL_VALIDATE="sigs.k8s.io/kubectl-validate@v0.0.4 ."
# For its schemas only.
export PROMETHEUS_OPERATOR=github.com/prometheus-operator/prometheus-operator@v0.85.0
export CYCLONEDX=0.5.9
export ABOUT=0.9.3

# go_module MODULE@VERSION: prints the folder of a module's files.
go_module() {
  local log
  command -v go > /dev/null || { echo "$1: go is not installed" >&2 && return 1; }
  log=$(mktemp)
  if ! GOFLAGS=-mod=mod go mod download -json "$1" > "$log" 2>&1; then
    echo "$1: $(tail -n 1 "$log")" >&2
    rm "$log"
    return 1
  fi
  sed -n 's/^\t"Dir": "\(.*\)",/\1/p' "$log"
  rm "$log"
}

# go_tool 'MODULE@VERSION PACKAGE': builds a program of Go unless it is there in this version. Prints its path.
go_tool() {
  local module=${1% *} package=${1#* } sources name folder log
  name=$(basename "$package")
  [ "$name" != . ] || name=$(basename "${module%@*}")
  folder="$TOOLS/go-$name-${module##*@}"
  if [ ! -x "$folder/$name" ]; then
    sources=$(go_module "$module") || return
    log=$(mktemp)
    # Not `go install`, which takes no module that replaces others.
    if ! (cd "$sources" && go build -buildvcs=false -o "$folder/$name" "$package") > "$log" 2>&1; then
      echo "$name: $(tail -n 1 "$log")" >&2
      rm "$log"
      return 1
    fi
    rm "$log"
  fi
  echo "$folder/$name"
}

# cargo_tool NAME VERSION [OPTION...]: the same for a program of Rust, with more options of `cargo install`.
cargo_tool() {
  local name=$1 version=$2 folder="$TOOLS/$1-$2" log
  shift 2
  if [ ! -x "$folder/bin/$name" ]; then
    log=$(mktemp)
    # Not into our target directory: it is no part of this workspace.
    if ! env -u CARGO_TARGET_DIR -u CARGO_ENCODED_RUSTFLAGS \
      cargo install --locked --quiet --root "$folder" --version "$version" "$@" "$name" > "$log" 2>&1; then
      echo "$name: $(tail -n 1 "$log")" >&2
      rm "$log"
      return 1
    fi
    rm "$log"
  fi
  echo "$folder/bin/$name"
}
