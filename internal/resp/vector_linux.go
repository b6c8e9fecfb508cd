//go:build !race

package resp

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// vector is room for the parts of a read or a write.
type vector []unix.Iovec

// quickBytes are copied by a call that keeps its processor. The Go scheduler takes
// that from other calls which take as long as one of its looks around (20 us), and
// wakes a thread for it: with four clients a tenth of the processor time of 64 KiB.
// The longest such call takes some 100 us.
const quickBytes = 512 << 10

// readv reads from a socket that does not block.
func (v *vector) readv(fd uintptr, parts [][]byte) (int, error) {
	return v.call(unix.SYS_READV, fd, parts)
}

// writev writes to a socket that does not block.
func (v *vector) writev(fd uintptr, parts [][]byte) (int, error) {
	return v.call(unix.SYS_WRITEV, fd, parts)
}

func (v *vector) call(number, fd uintptr, parts [][]byte) (int, error) {
	all, total := (*v)[:0], 0
	for _, p := range parts {
		if len(p) > 0 {
			all = append(all, unix.Iovec{Base: unsafe.SliceData(p)})
			all[len(all)-1].SetLen(len(p))
			total += len(p)
		}
	}
	*v = all
	defer clear(all)
	if len(all) == 0 {
		return 0, nil
	}
	var n uintptr
	var errno syscall.Errno
	if total <= quickBytes {
		n, _, errno = unix.RawSyscall(number, fd, uintptr(unsafe.Pointer(unsafe.SliceData(all))), uintptr(len(all)))
	} else {
		n, _, errno = unix.Syscall(number, fd, uintptr(unsafe.Pointer(unsafe.SliceData(all))), uintptr(len(all)))
	}
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
