// Command prefetch measures what a prefetch makes of a tier, all in one run:
// a daemon's parts in this process, a Go client at its socket.
//
//		go -C bench run ./disk/prefetch -dir /var/lib/kvstored-bench
//
//	  - From disk: a prompt's payload over the time until its last chunk is
//	    there, against the best that the same tier gives parallel readers.
//	  - From a tier with a latency of 30 ms: against loads at a time x size / time.
//	  - Usable: at every moment, chunks of the ready prefix against those that
//	    came up.
//	  - Push: from the return of a read to a client that waits for it; beside it,
//	    to a goroutine that waits at a bare socket.
//	  - Fairness: Jain's index over what clients with one and with fifty jobs of
//	    unequal length have had, at every sample between 10 % and 90 % of the work.
//
// Every round takes all measurements once, in random order with pauses
// between. Printed are medians over the rounds with their spread.
package main
