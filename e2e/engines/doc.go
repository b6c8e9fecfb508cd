// Package engines runs the demo with llama.cpp: it computes, stores, restores and compares,
// ends with its engine, and leaves nothing behind.
//
//	go -C e2e test ./engines
//
// It needs python3 on x86-64, and the library of llama.cpp, which
// `python3 cmd/kvstored/llamacpp/library.py fetch` brings.
package engines
