# shellcheck shell=bash
# What is made, from what, and where it goes. Sourced by the scripts beside it; the folder is the repository's.

# shellcheck source=scripts/packages.sh
source scripts/packages.sh
# shellcheck source=scripts/dist/tools.sh
source scripts/dist/tools.sh
# What is packed is for all users, whatever the umask of the builder.
umask 022
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$HOME/.cache/shoal/target}"
# What users get, and what is needed to make it.
DIST=$(realpath -m "${DIST:-dist}")
WORK="$CARGO_TARGET_DIR/dist"
mkdir -p "$DIST" "$WORK"

VERSION=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
case "$(uname -m)" in
  aarch64) ARCH=arm64 ;;
  *) ARCH=amd64 ;;
esac
# Everything made from one commit bears its date, so that it is the same whenever it is made.
SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2> /dev/null || echo 0)}"
DATE=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
export VERSION ARCH SOURCE_DATE_EPOCH DATE
# Who answers for the packages.
export MAINTAINER="${MAINTAINER:-The Shoal maintainers <maintainers@shoal.invalid>}"

# has PROGRAM PACKAGE WHAT: installs Debian's package of a program that is missing. Where that is not possible,
# says that WHAT is skipped, and fails.
has() {
  install_missing "$1" "$2"
  PATH="$PATH:/usr/sbin:/sbin" type -P "$1" > /dev/null || { echo "skipped: $3: $1 is not installed" && return 1; }
}

# made FILE WHAT: says that WHAT is skipped if there is no such file, and fails.
made() {
  [ -e "$1" ] || { echo "skipped: $2: it was not made" && return 1; }
}

# fail WORDS: ends a check.
fail() {
  echo "error: $*" >&2
  exit 1
}
