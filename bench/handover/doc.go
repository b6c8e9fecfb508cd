// Command handover measures how long clients are without an answer while one daemon
// takes over from another, for much DRAM and for many chunks.
//
//	go run ./bench/handover
//
// Four clients ask, each once in a millisecond, and connect again when their connection
// ends. A gap is the time between the last answer that a client had before a hand-over
// and its first one after. Each hand-over is to a process of its own, which has to have
// every chunk; with -other OLD the two programs take turns. Bytes and chunks are varied
// one at a time, so that the table says which of the two a gap grows with.
package main
