// Command evict measures what the counters of package policy cannot show: that
// a victim costs the same however many entries were refused, and how long the
// slowest evictions among a million entries take; what an index of many chunks
// costs in time, memory and garbage collection, next to a plain map with an
// entry for each chunk; and the same of a tier's ledger under each policy, alone
// and with the index.
//
//	go run ./bench/evict                       # 10 million chunks: about 4 GiB of memory, an hour on two busy cores
//	go run ./bench/evict -quick                # 1 million: some minutes
//	go run ./bench/evict -quick -row s3fifo    # one row of that: seconds
//
// Each row is measured in a process of its own, so that memory is what the
// kernel counts for it. Memory is that of the ledger turned over once, ghosts
// included; with the index that knows its chunks; and with a second ledger, of
// chunks that are in DRAM and on disk. The calls of the ledger are those that the
// daemon makes: for a client's reserve, commit, lookup and lease, and for the
// writer to the disk (daemon.go). How long an add, put or hit takes, and the
// garbage collector for marking, is processor time: on a busy machine a clock on
// the wall shows the others. So does that one, a little: the longest add or put
// is that of the middle of three builds, call by call, because the growth of a
// table is in all of them; the slowest is that of any.
package main
