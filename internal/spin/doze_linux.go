package spin

import (
	"time"

	"golang.org/x/sys/unix"
)

// readable sleeps until there is something to read from a socket, or for d, and
// reports whether there is.
func readable(fd uintptr, d time.Duration) bool {
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds[:], int(d.Milliseconds()))
	return n > 0 && err == nil
}
