#!/usr/bin/env bash
# Boots a fresh Debian with systemd in namespaces of its own, and has it install a package, run its node, upgrade
# and remove it: scripts/dist/life.sh, which runs there.
# Usage: scripts/dist/boot.sh PACKAGE.deb
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=scripts/dist/environment.sh
source scripts/dist/environment.sh
deb=${1:?usage: scripts/dist/boot.sh PACKAGE.deb}
# Seconds that the whole life may take on a busy machine.
LIFE_MAX=420

if [ "$(id -u)" != 0 ]; then
  echo 'skipped: install, upgrade and removal under systemd: only root can boot a Debian'
  exit
fi
has mmdebstrap mmdebstrap 'install, upgrade and removal under systemd' || exit 0
codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
system="$HOME/.cache/shoal/debian-${codename:=stable}.tar"
if [ ! -s "$system" ]; then
  mmdebstrap --quiet --variant=apt --include=systemd,curl,ca-certificates "$codename" "${system%.tar}.new.tar" \
    || { echo 'skipped: install, upgrade and removal under systemd: no Debian can be fetched' && exit; }
  mv "${system%.tar}.new.tar" "$system"
fi

machine=$(mktemp -d)
trap 'rm -rf "$machine"' EXIT
tar -C "$machine" -xf "$system"
cp "$deb" "$machine/old.deb"
dpkg-deb --raw-extract "$deb" "$machine/newer"
sed -i "s/^Version: .*/Version: $VERSION-2/" "$machine/newer/DEBIAN/control"
dpkg-deb --build -Zgzip -z1 "$machine/newer" "$machine/new.deb" > /dev/null
cp scripts/dist/life.sh "$machine/life.sh"
cat > "$machine/etc/systemd/system/life.service" << 'UNIT'
[Service]
Type=oneshot
ExecStart=/bin/bash /life.sh
StandardOutput=append:/life.log
StandardError=inherit
ExecStopPost=/bin/sh -c "systemctl poweroff --force --force > /dev/null 2>&1"
UNIT
mkdir -p "$machine/etc/systemd/system/multi-user.target.wants"
ln -s ../life.service "$machine/etc/systemd/system/multi-user.target.wants/life.service"

cat > "$machine/init.sh" << 'INIT'
# Mounts what systemd wants to find, and becomes it.
machine=$1
mount --bind "$machine" "$machine"
mount -t proc proc "$machine/proc"
mount -t sysfs sys "$machine/sys"
mount -t cgroup2 cgroup2 "$machine/sys/fs/cgroup"
mount -t tmpfs run "$machine/run"
mount -t tmpfs -o mode=755 dev "$machine/dev"
for device in null zero full random urandom tty; do
  touch "$machine/dev/$device"
  mount --bind "/dev/$device" "$machine/dev/$device"
done
touch "$machine/dev/console"
mount --bind /dev/null "$machine/dev/console"
mkdir "$machine/dev/shm" "$machine/dev/pts"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$machine/dev/pts"
ln -s pts/ptmx "$machine/dev/ptmx"
ln -s /proc/self/fd "$machine/dev/fd"
# Within a mere chroot, no process may have users of its own.
cd "$machine"
mkdir before
pivot_root . before
exec env -i container=shoal PATH=/usr/sbin:/usr/bin:/sbin:/bin \
  /bin/sh -c 'umount --lazy /before && mount --make-rshared / && exec /lib/systemd/systemd'
INIT
timeout --signal KILL "$LIFE_MAX" unshare --fork --pid --mount --uts --ipc --net --cgroup --kill-child \
  bash "$machine/init.sh" "$machine" < /dev/null > /dev/null 2>&1 || true
cat "$machine/life.log"
[ "$(tail -n 1 "$machine/life.log")" = 'the data outlived the package' ] || fail 'the life of a package'
