//go:build !linux

package main

import (
	"errors"
	"os"
)

// newMemory: memory is shared on Linux only.
func newMemory(int64) (*os.File, error) { return nil, errors.ErrUnsupported }
