package manifest

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/internal/arena"
)

// newMemory makes a file of n bytes in memory and maps it. Pages that are not written
// take no memory.
func newMemory(n int64) (*os.File, []byte, error) {
	f, err := arena.NewMemory("kvstored-manifest", n)
	if err != nil {
		return nil, nil, err
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("map %d bytes: %w", n, err), f.Close())
	}
	_ = unix.Madvise(mem, unix.MADV_DONTDUMP) // as the arena
	return f, mem, nil
}

func closeMemory(f *os.File, mem []byte) error { return errors.Join(unix.Munmap(mem), f.Close()) }

// mapMemory maps a file whose size cannot change.
func mapMemory(f *os.File) ([]byte, error) {
	const fixed = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW
	seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	if err != nil || seals&fixed != fixed {
		return nil, fmt.Errorf("%w: it is no sealed file in memory", ErrDamaged)
	}
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() == 0 {
		return nil, fmt.Errorf("%w: it is empty", ErrDamaged)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", st.Size(), err)
	}
	_ = unix.Madvise(mem, unix.MADV_DONTDUMP)
	return mem, nil
}

func unmap(mem []byte) error { return unix.Munmap(mem) }
