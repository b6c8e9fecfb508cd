// Package python has the sources of the Python client, for `kvstored demo
// --engine`, which runs them: the installed package kvstored, and llamacpp, which
// is llama.cpp on its own.
//
// # Owns
//
// Which of the files are in the program.
//
// # Never does
//
// It runs nothing.
//
// # Locks and buffers
//
// None.
package python

import "embed"

// Files are the packages kvstored and llamacpp, one folder each.
//
//go:embed kvstored/*.py llamacpp/*.py
var Files embed.FS
