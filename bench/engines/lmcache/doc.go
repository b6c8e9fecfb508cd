// Command lmcache has LMCache measure its own places for KV: `lmcache bench l2` with the
// file system, redis, the daemon's class and the daemon's Redis front end, by turns.
//
//	go -C bench run ./engines/lmcache [-rounds 5] [-keys 16] [-sizes 256KiB,1MiB,4MiB] [-dir DIR]
//
// Each run has a server, a folder and a process of LMCache of its own, which stores, looks
// up (half of the names are there) and loads so many values at a time. A time is LMCache's
// median of such calls, a number of the table the median over the rounds. LMCache compares
// the bytes of the last load of each run. The file system and the daemon's disk are both in
// DIR; what the file system has is in the kernel's page cache.
//
// It installs LMCache as bench/rivals does.
//
// Locks: none. Buffers: none.
package main
