# Shared by the scripts of the proof: a pinned virtual environment, and the binary under test.
# shellcheck shell=bash

# virtual_environment NAME REQUIREMENTS: prints the python of an environment that has exactly these packages.
virtual_environment() {
  local name=$1 requirements=$2 folder attempt
  folder="${XDG_CACHE_HOME:-$HOME/.cache}/shoal/venv-$name"
  mkdir -p "$(dirname "$folder")" || return
  # Two suites that run side by side may need it: one makes it.
  (
    flock 9 || exit
    # The list of packages is copied in last: an environment that has it is complete and current.
    cmp -s "$requirements" "$folder/installed.txt" && exit
    echo "installing the packages of $requirements into $folder" >&2
    python3 -m venv --clear "$folder" >&2 || exit
    for attempt in 1 2 3; do
      "$folder/bin/pip" install --quiet --disable-pip-version-check --requirement "$requirements" >&2 && break
      # The registry may have failed once.
      [ "$attempt" -lt 3 ] || exit
      sleep 5
    done
    cp "$requirements" "$folder/installed.txt"
  ) 9> "$folder.lock" || return
  echo "$folder/bin/python"
}

# build_shoal ROOT PROFILE: prints the path of the binary of this checkout.
build_shoal() {
  local root=$1 profile=$2 target folder=$2
  target=${CARGO_TARGET_DIR:-$root/target}
  [ "$profile" = dev ] && folder=debug
  cargo build --quiet --manifest-path "$root/Cargo.toml" --profile "$profile" --bin shoal >&2
  echo "$target/$folder/shoal"
}
