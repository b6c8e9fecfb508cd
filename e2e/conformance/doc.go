// Package conformance holds the clients of all languages against each other: each passes
// the scripts of testdata/conformance against a daemon of its own, and all take the same
// frames for frames of the daemon.
//
//	go -C e2e test ./conformance
//	go -C e2e test ./conformance -run TestClientsAgree -frames 400000 -seed 7
//
// It needs a C compiler with sanitizers for the C client, and Python for the Python
// client, whose scripts run in e2e/python.
package conformance
