//go:build race

package unseen

import "syscall"

// Read reads what a socket has that does not block. It returns EAGAIN where that is
// nothing, and 0 at the end.
func Read(fd uintptr, p []byte) (int, error) { return syscall.Read(int(fd), p) }

// Write writes what a socket takes that does not block. It returns EAGAIN where that is
// nothing.
func Write(fd uintptr, p []byte) (int, error) { return syscall.Write(int(fd), p) }
