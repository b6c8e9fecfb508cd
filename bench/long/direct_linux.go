package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// openDirect makes a file that is read and written past the page cache.
func openDirect(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC|unix.O_DIRECT, 0o600)
}
