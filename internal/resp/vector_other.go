//go:build race

package resp

import "golang.org/x/sys/unix"

// vector makes the calls of the package unix, which the race detector follows.
type vector struct{}

func (*vector) readv(fd uintptr, parts [][]byte) (int, error)  { return unix.Readv(int(fd), parts) }
func (*vector) writev(fd uintptr, parts [][]byte) (int, error) { return unix.Writev(int(fd), parts) }
