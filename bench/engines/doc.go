// Command engines measures the Redis front end against redis-server, both over
// Unix sockets, in one run: values of 0.25 to 8 MiB, stored and read by one
// client, the two interleaved, medians of single values. It needs redis-server
// in the path.
//
// With -names it is commands of many names instead: EXISTS and DEL of 1,000, MGET
// of 16 values of 64 KiB.
//
//	go -C bench run ./engines [-clients 8] [-event-loop] [-names]
package main
