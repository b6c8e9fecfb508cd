#!/bin/sh
# After the files are in place: the user, which is the daemon's too, and, where the
# router runs already, the new version of it.
set -e

if ! getent passwd kvstored >/dev/null; then
  useradd --system --user-group --no-create-home --home-dir /var/lib/kvstored \
    --shell /usr/sbin/nologin --comment "KV cache sidecar" kvstored
fi

if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  systemctl try-restart kvstored-router.service
fi
