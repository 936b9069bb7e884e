#!/usr/bin/env bash
# Packs the chart in the version of this workspace.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=scripts/dist/environment.sh
source scripts/dist/environment.sh
if ! helm=$(go_tool "$HELM" 2> "$WORK/why"); then
  echo "skipped: the Helm chart: $(cat "$WORK/why")"
  exit
fi
build="$WORK/chart"
rm -rf "$build"
mkdir -p "$build"
# Links lead to the one copy of rules and dashboard; the chart has copies.
cp --recursive --dereference packaging/helm/shoal "$build"
"$helm" package --version "$VERSION" --app-version "$VERSION" --destination "$build" "$build/shoal" > /dev/null
# helm notes the time of packing.
mkdir "$build/content"
tar --warning=no-timestamp -C "$build/content" -xzf "$build/shoal-$VERSION.tgz"
tar -C "$build/content" --create --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" shoal \
  | gzip -9n > "$DIST/shoal-$VERSION.tgz"
