// Command remote compares the remote tier with a bare SDK client: gets and
// puts of 1 and 4 MiB on the same server, in the same run, at the same
// concurrency. It counts the requests of a lookup of 512 chunks, and says when a
// prefix of 64 is there if each request takes 30 ms more. It starts a server of
// its own.
//
//	go -C bench run ./disk/remote -only get -size 1 -cpuprofile cpu.out
package main
