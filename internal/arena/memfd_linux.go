package arena

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/internal/pages"
)

// NewMemory creates a file of n bytes in memory whose size is sealed. Its mode is 0600.
func NewMemory(name string, n int64) (*os.File, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err := prepare(f, n); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func prepare(f *os.File, n int64) error {
	// A memfd is born open to all, and a process with any descriptor of it
	// could open it again through /proc with more rights.
	if err := f.Chmod(0o600); err != nil {
		return err
	}
	if err := f.Truncate(n); err != nil {
		return err
	}
	return addSeals(f, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW)
}

func addSeals(f *os.File, seals int) error {
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return fmt.Errorf("add seals %#x to %s: %w", seals, f.Name(), err)
	}
	return nil
}

// NewReadOnly maps n bytes of memory that the caller writes, and returns a descriptor by which
// others map it, and can only read. It is not part of a core dump. CloseReadOnly gives both back.
func NewReadOnly(name string, n int64) (mem []byte, f *os.File, err error) {
	if f, err = NewMemory(name, n); err != nil {
		return nil, nil, err
	}
	if mem, err = pages.Map(f, n, true); err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	_ = unix.Madvise(mem, unix.MADV_DONTDUMP) // as for the arena
	if f, err = forReaders(f); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("memory that others only read needs Linux 5.1: %w", err), CloseReadOnly(mem, f))
	}
	return mem, f, nil
}

// CloseReadOnly gives the memory of NewReadOnly back; mappings of others stay.
func CloseReadOnly(mem []byte, f *os.File) error { return errors.Join(pages.Unmap(mem), f.Close()) }

// forReaders has a file that is mapped writable be mapped so no more, and exchanges it for a
// descriptor that only reads. An error leaves the file as it is.
func forReaders(f *os.File) (*os.File, error) {
	if err := addSeals(f, unix.F_SEAL_FUTURE_WRITE|unix.F_SEAL_SEAL); err != nil {
		return f, err
	}
	return readOnly(f), nil
}

// readOnly exchanges a sealed file for a read-only descriptor of it, so that a
// client cannot even ask. Without /proc the file itself has to do: its seals
// are what protects it.
func readOnly(f *os.File) *os.File {
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return f
	}
	// Closing a memfd that stays mapped cannot lose anything.
	_ = f.Close()
	return os.NewFile(uintptr(fd), f.Name())
}
