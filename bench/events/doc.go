// Command events measures what counting and sending events costs a daemon, in one run:
//
//	go run ./bench/events
//
// Four daemons with 64 MiB of DRAM and no disk take the same work in turns: with
// events off; with events without a subscriber; with a subscriber on the socket; with
// one over ZeroMQ. The work of a turn is lookups of prompts of 24 chunks, one after the
// other, and after every -every of them a store of 24 chunks, for which as many others
// go: two events a chunk. Turns are short and many, and the order changes from round to
// round. The daemons do not poll, or their clients' time would be in theirs. Measured
// is the processor time of the daemon for the turn, and for its events to be sent; the
// ratios are each daemon's to that without events of the same round, and between the
// brackets the median lies with a certainty of 95 %.
package main
