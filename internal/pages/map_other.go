//go:build !linux

package pages

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Map maps n bytes of f, shared. The caller makes sure that the file stays as long, and
// calls Unmap.
func Map(f *os.File, n int64, writable bool) ([]byte, error) {
	prot := unix.PROT_READ
	if writable {
		prot |= unix.PROT_WRITE
	}
	p, err := unix.Mmap(int(f.Fd()), 0, int(n), prot, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", n, err)
	}
	return p, nil
}

// Unmap ends a mapping of Map.
func Unmap(p []byte) error { return unix.Munmap(p) }
