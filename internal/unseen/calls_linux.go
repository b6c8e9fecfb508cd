package unseen

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Wake wakes the monitor, if it sleeps. Otherwise it takes 0.1 us.
func Wake() { _, _, _ = unix.Syscall(unix.SYS_GETPID, 0, 0, 0) }

// Yield lets another thread run that waits for this processor.
func Yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// Unread is how many of the bytes that were sent through a socket the other end has not
// taken; 0 where that is not known.
func Unread(fd uintptr) int64 {
	var n int32
	if _, _, failed := unix.RawSyscall(unix.SYS_IOCTL, fd, unix.SIOCOUTQ, uintptr(unsafe.Pointer(&n))); failed != 0 {
		return 0
	}
	return int64(n)
}

// TakeEvent takes an event off an epoll instance, if there is one.
func TakeEvent(instance uintptr) {
	var event unix.EpollEvent
	_, _, _ = unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, instance, uintptr(unsafe.Pointer(&event)), 1, 0, 0, 0)
}

// ReadFile reads the beginning of a file of the kernel's into buf. It returns nil where
// it cannot.
func ReadFile(path string, buf []byte) []byte {
	name, err := unix.BytePtrFromString(path)
	if err != nil || len(buf) == 0 {
		return nil
	}
	here := unix.AT_FDCWD
	fd, _, failed := unix.RawSyscall6(unix.SYS_OPENAT, uintptr(here), uintptr(unsafe.Pointer(name)), unix.O_RDONLY|unix.O_CLOEXEC, 0, 0, 0)
	if failed != 0 {
		return nil
	}
	n, _, failed := unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(unsafe.SliceData(buf))), uintptr(len(buf)))
	_, _, _ = unix.RawSyscall(unix.SYS_CLOSE, fd, 0, 0) // it was only read
	if failed != 0 {
		return nil
	}
	return buf[:n]
}
