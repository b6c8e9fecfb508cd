//go:build !race

package unseen

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// most is how many bytes a call may copy that is not seen: it keeps its processor of the
// runtime while it does, some 10 us.
const most = 64 << 10

// Read reads what a socket has that does not block. It returns EAGAIN where that is
// nothing, and 0 at the end. The runtime sees a read with more room than most.
func Read(fd uintptr, p []byte) (int, error) {
	if len(p) > most {
		return syscall.Read(int(fd), p)
	}
	return transfer(unix.SYS_RECVFROM, fd, p, unix.MSG_DONTWAIT)
}

// Write writes what a socket takes that does not block, up to most bytes at a time. It
// returns EAGAIN where that is nothing.
func Write(fd uintptr, p []byte) (int, error) {
	return transfer(unix.SYS_SENDTO, fd, p[:min(len(p), most)], unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
}

func transfer(call, fd uintptr, p []byte, flags uintptr) (int, error) {
	n, _, failed := unix.RawSyscall6(call, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), flags, 0, 0)
	if failed != 0 {
		return 0, failed
	}
	return int(n), nil
}
