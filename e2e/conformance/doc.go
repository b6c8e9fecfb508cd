// Package conformance holds the clients in Go and Python against each other: each passes
// the scripts of testdata/conformance against a daemon of its own, and both take the same
// frames for frames of the daemon.
//
//	go -C e2e test ./conformance
//	go -C e2e test ./conformance -run TestClientsAgree -frames 400000 -seed 7
//
// The scripts of the Python client run in e2e/python.
package conformance
