package arena

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

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

// resident reports whether all of at most pieceBytes of a mapping, which begin
// at a page, are in memory. Where the kernel does not say they are not.
func resident(p []byte) bool {
	var pages [pieceBytes / minPage]byte
	n := (len(p) + pageBytes - 1) / pageBytes
	_, _, err := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), uintptr(unsafe.Pointer(&pages)))
	if err != 0 {
		return false
	}
	for _, in := range pages[:n] {
		if in&1 == 0 {
			return false
		}
	}
	return true
}

// minPage is the smallest page that Linux has.
const minPage = 4 << 10

var pageBytes = os.Getpagesize()

// Close gives the pages back that the window still has, of both sides, and
// unmaps it here; the client keeps its own mapping, of zeros. Closing twice is
// no error.
func (w *Window) Close() error {
	if w.file == nil {
		return nil
	}
	punched := unix.Fallocate(int(w.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, int64(len(w.mem)))
	err := errors.Join(punched, unix.Munmap(w.mem), w.file.Close())
	w.mem, w.file = nil, nil
	return err
}
