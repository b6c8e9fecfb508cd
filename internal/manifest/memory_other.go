//go:build !linux

package manifest

import (
	"errors"
	"fmt"
	"os"
)

var errLinux = fmt.Errorf("on Linux only: %w", errors.ErrUnsupported)

func newMemory(int64) (*os.File, []byte, error) { return nil, nil, errLinux }

func closeMemory(*os.File, []byte) error { return nil }

func mapLeft(*os.File) ([]byte, error) { return nil, errLinux }

func unmap([]byte) error { return nil }
