// Command kvstored is the KV cache sidecar and its tools: what runs it (serve, check, demo),
// what looks at it (stats, why, list, lookup, events), hands-on access to a prompt (put,
// get, forget), and what operates it (flush, scrub, policy, lab).
//
// It wires the packages of this module together and is imported by none. Only
// main ends the process; every command returns an error, and exit.go says
// which code it means.
package main
