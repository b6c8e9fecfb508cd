#!/bin/sh
# Serves a model with vLLM and LMCache over the daemon at $KVSTORED_SOCKET:
#
#   KVSTORED_SOCKET=/run/kvstored/kvstored.sock deploy/lmcache/serve.sh MODEL [ARGUMENTS OF VLLM]
#
# The wheel of clients/python is installed first, in the environment of vLLM and LMCache.
set -eu

if [ $# -eq 0 ]; then
  sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
: "${KVSTORED_SOCKET:=/run/kvstored/kvstored.sock}"
if [ ! -S "$KVSTORED_SOCKET" ]; then
  echo "no daemon: $KVSTORED_SOCKET is no socket; start kvstored, or set KVSTORED_SOCKET" >&2
  exit 1
fi
if ! python3 -c 'import kvstored.lmcache' 2>/dev/null; then
  echo "the Python package kvstored is not installed here: clients/python/README.md says how" >&2
  exit 1
fi
export KVSTORED_SOCKET
export LMCACHE_CONFIG_FILE="${LMCACHE_CONFIG_FILE:-$(dirname "$0")/lmcache.yaml}"
export PYTHONHASHSEED=0 # or the names of chunks differ after a restart

exec vllm serve "$@" --kv-transfer-config '{"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"}'
