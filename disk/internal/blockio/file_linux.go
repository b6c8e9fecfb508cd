package blockio

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

const direct = unix.O_DIRECT // has no page cache under a file

// preallocate gives f its blocks now, so that a write into it cannot run out
// of space later.
func preallocate(f *os.File, size int64) error {
	err := control(f, func(fd int) error {
		for {
			if err := unix.Fallocate(fd, 0, 0, size); err != unix.EINTR {
				return err
			}
		}
	})
	if errors.Is(err, unix.EOPNOTSUPP) {
		return f.Truncate(size) // no such promise here; writes may fail with ENOSPC
	}
	return err
}

// WriteVAt implements vectored. After an error any part of ps, or none, may be
// written; n does not tell.
func (f directFile) WriteVAt(ps [][]byte, off int64) (n int, err error) {
	err = control(f.File, func(fd int) (err error) {
		for {
			if n, err = unix.Pwritev(fd, ps, off); err != unix.EINTR {
				return err
			}
		}
	})
	return n, err
}

func dropCache(f *os.File, off, n int64) {
	_ = control(f, func(fd int) error { return unix.Fadvise(fd, off, n, unix.FADV_DONTNEED) })
}

func dataSync(f *os.File) error {
	return control(f, unix.Fdatasync)
}

// control runs fn with f's descriptor. f.Fd would take it out of the runtime's hands.
func control(f *os.File, fn func(fd int) error) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var fnErr error
	if err := c.Control(func(fd uintptr) { fnErr = fn(int(fd)) }); err != nil {
		return err
	}
	return fnErr
}
