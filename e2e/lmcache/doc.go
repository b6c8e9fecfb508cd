// Package lmcache runs a real LMCache without a GPU beside daemons that are killed, stopped
// and restarted: its StorageManager and its server with the L2 adapter, its own benchmarks of
// both, and the engine of one process with the plug-in and over Redis.
//
//	python3 e2e/lmcache/install.py           # once: 3 minutes, 1.9 GB in the user's cache
//	go -C e2e test -count=1 ./lmcache        # 2 minutes
//
// Where that LMCache is not installed everything is skipped, or fails with CI=true.
// engine/drive.py is what the tests drive.
package lmcache
