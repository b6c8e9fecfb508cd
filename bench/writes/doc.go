// Command writes measures what clients wait for their stores where the disk below DRAM is
// full: in the write mode through with lru on disk, and in auto with lru and with tenure
// there, three daemons that store by turns. Prompts are new, and each waits for room.
//
//	go run ./bench/writes [-clients 8] [-rounds 6] [-seconds 4] [-pause 20ms] [-dram 512]
//
// Printed are the quantiles of one prompt of eight chunks over all rounds, their ratios to
// those of through, and how many chunks were written to the disk.
package main
