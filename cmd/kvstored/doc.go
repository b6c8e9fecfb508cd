// Command kvstored is the KV cache sidecar and its tools: the daemon itself
// (serve), what an operator asks of it (check, config, stats, flush, pins, spaces,
// revoke, policy, clear, purge), hands-on access (put, get, lookup), and two ways to see it work (demo, replay).
//
// It wires the packages of this module together and is imported by none. Only
// main ends the process; every command returns an error, and exit.go says
// which code it means.
package main
