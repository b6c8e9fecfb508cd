package main

import (
	"os"

	"github.com/kvstored/kvstored/internal/arena"
)

// newMemory is memory that two processes can map.
func newMemory(n int64) (*os.File, error) { return arena.NewMemory("bench-window", n) }
