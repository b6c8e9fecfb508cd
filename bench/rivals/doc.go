// Command rivals measures kvstored beside what else holds KV caches, each with its own
// client in Python: memcached with pymemcache, redis with redis-py, Mooncake's store,
// LMCache's server, and the daemon's Redis front end. One client, one thread, DRAM only.
//
//	go -C bench run ./rivals [-rounds 5] [-rivals kvstored,memcached] [-sizes 64KiB,4MiB] [-batches 16x1MiB] [-json FILE]
//
// It installs the clients by name into the user's cache folder, servers that are missing
// with apt-get, and starts every server itself, each with at most 2 GiB of memory. What
// cannot be had is named and not run. Needed are Python 3.10 or newer and about 10 GiB of
// memory; LMCache also takes 600 MB to download, once.
//
// Each round has every rival do every row once, row by row, in an order that rotates. A
// time is the median of a round's calls, and a number of the table the median of the
// rounds; a ratio is of a round to kvstored's in the same round. Every byte
// that comes back is compared with what was stored, outside of the time. A put ends when the
// value can be read; a get ends when its bytes are the caller's: in memory of the caller
// for kvstored, Mooncake and LMCache, in an object of the client's for the others. LMCache
// has no get without a lookup, so its time is both.
//
// Locks: none. Buffers: none; the values lie in the processes of the clients.
package main
