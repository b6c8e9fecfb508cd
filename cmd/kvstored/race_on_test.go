//go:build race

package main

// The race detector takes memory of its own, several times that of the daemon.
const raced = true
