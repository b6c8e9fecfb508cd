//go:build !linux

package main

import (
	"errors"
	"os"
)

// openDirect is errors.ErrUnsupported here.
func openDirect(string) (*os.File, error) { return nil, errors.ErrUnsupported }
