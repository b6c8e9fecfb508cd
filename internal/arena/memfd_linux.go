package arena

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
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
