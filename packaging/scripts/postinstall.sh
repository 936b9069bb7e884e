#!/bin/sh
# Makes the user of the node, which has no home, no shell and no password. Then reads the new unit: a node that
# runs is restarted, a new one waits for its configuration.
set -e
if ! getent group shoal > /dev/null; then
  groupadd --system shoal
fi
if ! getent passwd shoal > /dev/null; then
  useradd --system --gid shoal --home-dir /var/lib/shoal --no-create-home --shell /usr/sbin/nologin \
    --comment 'Shoal cache node' shoal
fi
# Secrets may stand in the configuration.
chgrp shoal /etc/shoal/shoal.toml
chmod 0640 /etc/shoal/shoal.toml
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  systemctl try-restart shoal.service
fi
