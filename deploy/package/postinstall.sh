#!/bin/sh
# After the files are in place: the user, its folder, and, where the daemon runs
# already, the new version of it.
set -e

if ! getent passwd kvstored >/dev/null; then
  useradd --system --user-group --no-create-home --home-dir /var/lib/kvstored \
    --shell /usr/sbin/nologin --comment "KV cache sidecar" kvstored
fi
install -d -o kvstored -g kvstored -m 0700 /var/lib/kvstored

if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  systemctl try-restart kvstored.service
fi
