// Command long stores a prompt many times as long as the DRAM of a running
// daemon through one client, reads it back and compares every byte, and
// measures what another client's small prompts wait meanwhile.
//
//	go run ./bench/long -socket /run/kvstored/kvstored.sock -dram 256 -times 20 -disk /var/lib/kvstored
//
// Before and after each it streams a file of its own in the folder -disk, with
// direct I/O, and says what share of that the daemon has made.
package main
