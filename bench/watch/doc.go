// Command watch measures the cost of being watched to a daemon, in one run:
//
//	go run ./bench/watch
//
// Two daemons with 64 MiB of DRAM and a disk tier take the same work in turns. One
// estimates no other sizes and has no listener for pages. The other estimates them; every
// two seconds a page asks it for an event, and a terminal makes its calls; and it is
// scraped every five. The work is lookups of prompts of 24 chunks; lookups of prompts
// that are missing from their middle on; loads from DRAM, which are a prefetch, a wait
// and a release; and loads from disk, of a working set that DRAM cannot hold. Each has a
// turn of its own. All readers wait for a turn of the daemon that they read, so that they
// come twice as often in its own time, and cost the other nothing. The ratios are of sums
// over all turns, with their standard errors; the processor time is that of the daemon.
//
// With -estimates the two differ in nothing but the estimates.
//
// Why tokens are missed cannot be switched off: -profile writes a processor profile of the
// watched daemon, over all of its turns.
package main
