package arena

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

func newWindow(n int64) (*Window, error) {
	f, err := newMemfd("kvstored-window", n)
	if err != nil {
		return nil, err
	}
	if err := addSeals(f, unix.F_SEAL_SEAL); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, int(n), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("map %d bytes: %w", n, err), f.Close())
	}
	_ = unix.Madvise(mem, unix.MADV_DONTDUMP) // as for the arena
	return &Window{mem: mem, file: f}, nil
}

// Close unmaps the window here; the client keeps its own mapping. Nobody may
// use Bytes anymore. Closing twice is no error.
func (w *Window) Close() error {
	if w.file == nil {
		return nil
	}
	err := errors.Join(unix.Munmap(w.mem), w.file.Close())
	w.mem, w.file = nil, nil
	return err
}
