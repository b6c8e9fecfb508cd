package handover

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// NewMemory makes an empty file in memory, for Seal once it is written. Memory for the
// first bytes of it is taken at once.
func NewMemory(name string, bytes int64) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("hand-over: memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	err = f.Chmod(0o600)
	if err == nil && bytes > 0 {
		err = unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, bytes)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("hand-over: %d bytes of memory: %w", bytes, err), f.Close())
	}
	return f, nil
}

const unchanging = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE | unix.F_SEAL_SEAL

// Seal has a file of NewMemory never change again.
func Seal(f *os.File) error {
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unchanging); err != nil {
		return fmt.Errorf("hand-over: seal %s: %w", f.Name(), err)
	}
	return nil
}

// Map maps a sealed file; unmap it when nothing of it is used any more. A file that could
// change meanwhile is refused.
func Map(f *os.File) (data []byte, unmap func() error, err error) {
	seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	if err != nil || seals&unchanging != unchanging {
		return nil, nil, errors.New("hand-over: the directory is no sealed file in memory")
	}
	st, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if st.Size() == 0 {
		return nil, func() error { return nil }, nil
	}
	data, err = unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("hand-over: map the directory of %d bytes: %w", st.Size(), err)
	}
	return data, func() error { return unix.Munmap(data) }, nil
}
