#!/usr/bin/env bash
# Makes the image: the programs in $WORK/bin, the certificates of public authorities, the texts of licences,
# and nothing else.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=scripts/dist/environment.sh
source scripts/dist/environment.sh
# The user of the node; distroless images have the same.
NODE_USER=65532
AUTHORITIES=/etc/ssl/certs/ca-certificates.crt

has umoci umoci 'the image' || exit 0
install_missing update-ca-certificates ca-certificates
build="$WORK/image"
root="$build/root"
layout="$build/oci"
rm -rf "$build"
mkdir -p "$root"/{etc/ssl/certs,etc/shoal,tmp,usr/bin,var/cache/shoal,var/lib/shoal}
for program in shoal shoal-planner; do
  [ ! -e "$WORK/bin/$program" ] || install -m 0755 "$WORK/bin/$program" "$root/usr/bin"
done
install -m 0644 "$AUTHORITIES" "$root/etc/ssl/certs"
[ ! -e "$DIST/third-party.txt" ] || install -D -m 0644 -t "$root/usr/share/doc/shoal" "$DIST/third-party.txt"
printf 'shoal:x:%d:%d::/var/lib/shoal:/sbin/nologin\n' "$NODE_USER" "$NODE_USER" > "$root/etc/passwd"
printf 'shoal:x:%d:\n' "$NODE_USER" > "$root/etc/group"
chmod 1777 "$root/tmp"
chmod -R a+rX "$root"

tar_of() {
  tar --sort=name --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --format=gnu "$@"
}
tar_of --create --owner=0 --group=0 --exclude ./var/cache/shoal --exclude ./var/lib/shoal --file "$build/layer.tar" \
  --directory "$root" .
tar_of --append --owner="$NODE_USER" --group="$NODE_USER" --file "$build/layer.tar" --directory "$root" \
  ./var/cache/shoal ./var/lib/shoal

umoci init --layout "$layout"
umoci new --image "$layout:$VERSION"
umoci raw add-layer --image "$layout:$VERSION" --history.created "$DATE" --history.created_by 'make dist' "$build/layer.tar"
umoci config --image "$layout:$VERSION" --no-history --created "$DATE" --architecture "$ARCH" --os linux \
  --config.user "$NODE_USER:$NODE_USER" --config.entrypoint /usr/bin/shoal --config.workingdir /var/lib/shoal \
  --config.env PATH=/usr/bin --config.volume /var/cache/shoal --config.exposedports 9000/tcp \
  --config.exposedports 9100/tcp --config.exposedports 9200/tcp --config.exposedports 9200/udp \
  --config.stopsignal SIGTERM \
  --config.label org.opencontainers.image.title=shoal --config.label "org.opencontainers.image.version=$VERSION" \
  --config.label org.opencontainers.image.licenses=Apache-2.0
umoci gc --layout "$layout"
tar_of --create --owner=0 --group=0 --file "$DIST/shoal-$VERSION-image-$ARCH.tar" --directory "$layout" .
