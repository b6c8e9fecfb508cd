//go:build !linux

package handover

import (
	"errors"
	"fmt"
	"os"
)

var errLinux = fmt.Errorf("hand-over: on Linux only: %w", errors.ErrUnsupported)

// NewMemory, Seal and Map are not there on these systems.
func NewMemory(string, int64) (*os.File, error) { return nil, errLinux }

// Seal has a file never change again.
func Seal(*os.File) error { return errLinux }

// Map maps a sealed file.
func Map(*os.File) (data []byte, unmap func() error, err error) { return nil, nil, errLinux }
