// Command writes measures what clients wait for their stores where the disk below DRAM is
// full: in the write mode through with lru on disk, and in auto with tenure there, two
// daemons that store by turns. Prompts are new, and each waits for room.
//
//	go run ./bench/writes [-clients 8] [-rounds 6] [-seconds 4]
//
// Printed are the quantiles of one prompt of eight chunks over all rounds, and the ratio
// of auto to through.
package main
