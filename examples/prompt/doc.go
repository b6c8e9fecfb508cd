// Command prompt shows how an engine uses kvstored: it loads the stored prefix of
// a prompt, computes the chunks behind it, and stores those.
//
//	go run ./examples/prompt -socket /run/kvstored/kvstored.sock
//
// The KV of a chunk is made up from its tokens, so that each loaded byte can be
// compared. prompt.py, beside this folder, does the same in Python.
package main
