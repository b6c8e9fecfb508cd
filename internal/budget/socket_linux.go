package budget

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// sendBuffer is how much a socket holds at most; 0 if that is not known. TCP's
// grows to what the system allows, of which this is the beginning.
func sendBuffer(raw syscall.RawConn) (n int64) {
	_ = raw.Control(func(fd uintptr) { // a closed socket holds nothing
		if most, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF); err == nil {
			n = int64(most)
		}
	})
	return n
}

// unread is how much of what was sent the other end has not taken.
func unread(raw syscall.RawConn) (n int64) {
	_ = raw.Control(func(fd uintptr) { // a closed socket holds nothing
		if left, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); err == nil {
			n = int64(left)
		}
	})
	return n
}
