#!/bin/sh
# Stops the node when the package goes, and leaves it running while a newer one comes.
set -e
case "$1" in
  remove | 0)
    if [ -d /run/systemd/system ]; then
      systemctl disable --now shoal.socket shoal.service
    fi
    ;;
esac
