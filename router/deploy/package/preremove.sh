#!/bin/sh
# Before the files go. Debian says remove, RPM says how many versions stay.
set -e

case "${1:-remove}" in
remove | 0)
  if [ -d /run/systemd/system ]; then
    systemctl disable --now kvstored-router.service || true
  fi
  ;;
esac
