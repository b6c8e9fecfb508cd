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

// unread is how many of the bytes sent the other end has not taken.
func unread(raw syscall.RawConn) (n int64) {
	_ = raw.Control(func(fd uintptr) { // a closed socket holds nothing
		n = queued(int(fd))
	})
	return n
}

// unreadOf is unread of a descriptor. When a TCP connection is reset, the kernel frees
// what was unread and goes on counting it.
func unreadOf(fd int) int64 {
	if info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO); err == nil && info.State == unix.BPF_TCP_CLOSE {
		return 0
	}
	return queued(fd)
}

func queued(fd int) int64 {
	n, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
	if err != nil {
		return 0
	}
	return int64(n)
}

// duplicate makes a descriptor of its own for a socket.
func duplicate(raw syscall.RawConn) (dup int, ok bool) {
	_ = raw.Control(func(fd uintptr) { // a closed socket has none
		var err error
		dup, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
		ok = err == nil
	})
	return dup, ok
}

func closeFD(fd int) { _ = unix.Close(fd) }
