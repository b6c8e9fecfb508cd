// Package python has the sources of the Python client, for `kvstored demo
// --engine`, which runs them.
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

// Files are the package kvstored, in the folder src.
//
//go:embed src/kvstored/*.py src/kvstored/llamacpp/*.py
var Files embed.FS
