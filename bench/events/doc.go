// Command events measures what counting and sending events costs a daemon, in one run:
//
//	go run ./bench/events
//
// Four daemons with 64 MiB of DRAM and no disk take the same work in turns: with
// events off; with events without a subscriber; with a subscriber on the socket; with
// one over ZeroMQ. The work of a round is lookups of prompts of 24 chunks, as fast as
// one client makes them, while another client stores chunks at a steady rate, each
// of which another chunk goes for: two events a chunk. Measured is the processor time
// of the daemon, and how many lookups were answered in the round; the ratios are
// medians over the rounds, each daemon's beside that without events of the same round.
package main
