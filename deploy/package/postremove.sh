#!/bin/sh
# After the files are gone. What is stored and the configuration stay until the
# package is purged, as Debian calls it; RPM has no such step, there they stay.
# Folders of disk.paths outside of /var/lib/kvstored are never touched.
set -e

if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
fi
if [ "${1:-}" = purge ]; then
  rm -rf /var/lib/kvstored /run/kvstored
  rm -f /etc/default/kvstored
  if [ -e /usr/bin/kvstored-router ]; then # which has its configuration there, and the user
    rm -f /etc/kvstored/kvstored.yaml
  else
    rm -rf /etc/kvstored
    if getent passwd kvstored >/dev/null; then
      userdel kvstored
    fi
  fi
fi
