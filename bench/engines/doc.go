// Command engines measures the Redis front end against redis-server, both over
// Unix sockets, in one run: values of 0.25 to 8 MiB, stored and read by one
// client, the two interleaved, medians of single values. It needs redis-server
// in the path.
//
//	go run ./bench/engines [-clients 8] [-event-loop]
package main
