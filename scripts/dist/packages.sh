#!/usr/bin/env bash
# Makes the packages for Debian and for Red Hat, and an archive of the same files, from the programs in $WORK/bin.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=scripts/dist/environment.sh
source scripts/dist/environment.sh

if ! nfpm=$(go_tool "$NFPM" 2> "$WORK/why"); then
  echo "skipped: the packages: $(cat "$WORK/why")"
  exit
fi
build="$WORK/packages"
root="$build/root"
share="$root/usr/share"
doc="$share/doc/shoal"
rm -rf "$build"
mkdir -p "$root/usr/bin" "$doc" "$share/man" "$root/usr/lib/systemd/system"

# put MODE SOURCE FOLDER: copies a file.
put() {
  install -D -m "$1" -t "$3" "$2"
}

for program in shoal shoal-planner; do
  [ ! -e "$WORK/bin/$program" ] || put 0755 "$WORK/bin/$program" "$root/usr/bin"
done
shoal="$root/usr/bin/shoal"
mkdir -p "$share"/{bash-completion/completions,fish/vendor_completions.d,zsh/vendor-completions}
"$shoal" completions bash > "$share/bash-completion/completions/shoal"
"$shoal" completions fish > "$share/fish/vendor_completions.d/shoal.fish"
"$shoal" completions zsh > "$share/zsh/vendor-completions/_shoal"
"$shoal" man "$share/man/man1"
gzip -9n "$share"/man/man1/*.1

put 0644 packaging/systemd/shoal.service "$root/usr/lib/systemd/system"
put 0644 packaging/systemd/shoal.socket "$root/usr/lib/systemd/system"
put 0644 shoal.toml "$doc"
put 0644 packaging/copyright "$build/debian"
gzip -9nc CHANGELOG.md > "$doc/changelog.gz"
printf 'shoal (%s-1) stable; urgency=medium\n\n  * See changelog.gz.\n\n -- %s  %s\n' \
  "$VERSION" "$MAINTAINER" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")" | gzip -9n > "$build/debian/changelog.Debian.gz"
[ ! -e "$DIST/shoal.cdx.json" ] || gzip -9nc "$DIST/shoal.cdx.json" > "$doc/shoal.cdx.json.gz"
[ ! -e "$DIST/third-party.txt" ] || gzip -9nc "$DIST/third-party.txt" > "$doc/third-party.txt.gz"
put 0644 packaging/prometheus/shoal.rules.yml "$share/shoal/prometheus"
put 0644 packaging/prometheus/shoal.alerts.yml "$share/shoal/prometheus"
put 0644 packaging/grafana/shoal.json "$share/shoal/grafana"

cp -r packaging/nfpm.yaml packaging/scripts packaging/shoal.toml packaging/lintian-overrides "$build"
chmod 0644 "$build/lintian-overrides"
# The umask of the builder is no part of a package.
find "$build" -type d -exec chmod 0755 {} +
find "$build" -newermt "@$SOURCE_DATE_EPOCH" -exec touch --no-dereference -d "@$SOURCE_DATE_EPOCH" {} +
for kind in deb rpm; do
  (cd "$build" && "$nfpm" package --config nfpm.yaml --packager "$kind" --target "$DIST" > "$WORK/nfpm.log" 2>&1) \
    || { cat "$WORK/nfpm.log" >&2 && exit 1; }
done

archive="shoal-$VERSION-linux-$ARCH"
tar --create --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \
  --transform "s,^\.,$archive," --directory "$root/usr" . | gzip -6n > "$DIST/$archive.tar.gz"
