#!/bin/sh
# After the files are gone. The configuration stays until the package is purged, as
# Debian calls it; RPM has no such step. The user is the daemon's where that is there.
set -e

if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
fi
if [ "${1:-}" = purge ]; then
  rm -f /etc/kvstored/router.yaml /etc/default/kvstored-router
  if [ ! -e /usr/bin/kvstored ]; then
    rmdir /etc/kvstored 2>/dev/null || true
    if [ ! -e /var/lib/kvstored ] && getent passwd kvstored >/dev/null; then
      userdel kvstored
    fi
  fi
fi
