// Command events measures what counting and sending events costs a daemon, in one run:
//
//	go run ./bench/events
//
// Five daemons with 64 MiB of DRAM and no disk take the same work in turns: with
// events off; with events off again, which shows how much two daemons that are alike
// differ; with events without a subscriber; with a subscriber on the socket; with
// one over ZeroMQ. The work of a turn is lookups of prompts of 24 chunks, one after the
// other, and after every -every of them a store of 24 chunks, for which as many others
// go: two events a chunk. Turns are short and many, and the order changes from round to
// round. All daemons are started -starts times, since one may have luck with its memory
// for as long as it runs. The daemons do not poll, or their clients' time would be in
// theirs. They have all processors but one, and clients and subscribers that one, unless
// -apart=false lets the kernel choose. Measured is the processor time of the daemon for
// the turn, and for its events to be sent; the ratios are each daemon's to that without
// events of the same round: their median, the bounds between which it lies with a
// certainty of 95 %, and the least and most of the medians of one start.
package main
