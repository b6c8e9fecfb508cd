// Command rivals measures kvstored beside redis and memcached in one run, over
// Unix sockets: one client and four, single values and batches of 16, from 64 KiB
// to 8 MiB, on a machine that is idle otherwise and beside two busy loops. Each
// round times all systems one after another, in an order that rotates. Printed are
// medians over the rounds, ratios within a round, the 99th percentile of single
// calls, and processor time of clients and server. A floor copies as fast as this
// machine can. By RESP a batch is an MSET or MGET, and one question is whether a
// thousand names are there.
//
//	go -C bench run ./rivals [-rounds 7] [-only 'put|get'] [-sizes 64KiB,4MiB] [-busy] [-clients 1]
//
// It needs redis-server and memcached in the path, of Debian for example (apt-get
// install redis-server memcached), and about 4 GiB of memory.
package main
