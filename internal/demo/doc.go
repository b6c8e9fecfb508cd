// Package demo plays what `kvstored demo` shows: people who chat with one assistant through
// an engine that stores and loads, and a restart of the daemon in the middle.
//
// # Owns
//
// The prompts, their course and its result; the sources of the demo with an engine that
// computes, which are a program of their own.
//
// # Never does
//
// It prints nothing and starts no process.
//
// # Locks and buffers
//
// None, and no goroutines. A payload is compared with one that is made beside it.
package demo

import "embed"

// Llamacpp is the Python package llamacpp: llama.cpp on its own, and people who talk with it.
//
//go:embed llamacpp/*.py
var Llamacpp embed.FS
