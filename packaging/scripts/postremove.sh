#!/bin/sh
# Removes blocks, which are copies, when the package is purged. What a tier keeps in /var/lib/shoal may be
# nowhere else: it stays, and so does the user that it belongs to.
set -e
case "$1" in
  purge)
    rm -rf /var/cache/shoal
    rmdir /var/lib/shoal 2> /dev/null || true
    ;;
esac
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
fi
