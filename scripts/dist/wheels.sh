#!/usr/bin/env bash
# Makes the wheels: the Python client, and the planner as a program that pip installs.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=scripts/dist/environment.sh
source scripts/dist/environment.sh
# shellcheck source=tests/real/environment.sh
source tests/real/environment.sh
if ! python=$(virtual_environment dist scripts/dist/requirements.txt); then
  echo 'skipped: the wheels: what builds them cannot be installed'
  exit
fi
build="$WORK/wheels"
rm -rf "$build"
mkdir -p "$build"
cp -r clients/python "$build/client"
"$python" -m build --wheel --no-isolation --outdir "$DIST" "$build/client" > "$WORK/wheels.log" || { cat "$WORK/wheels.log" >&2 && exit 1; }
if [ -e "$WORK/bin/shoal-planner" ]; then
  scripts/dist/program_wheel.py "$WORK/bin/shoal-planner" "$VERSION" "$DIST"
fi
