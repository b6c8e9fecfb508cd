package arena

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/internal/pages"
)

// newWindow does not ask for huge pages: clients advise their own mappings, and
// on the advice of the daemon the kernel could fill holes of a window with pages
// that are charged to the daemon.
func newWindow(n int64) (*Window, error) {
	f, err := NewMemory("kvstored-window", n)
	if err != nil {
		return nil, err
	}
	if err := addSeals(f, unix.F_SEAL_SEAL); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	mem, err := pages.Map(f, n, false)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	_ = unix.Madvise(mem, unix.MADV_DONTDUMP) // as for the arena
	return &Window{mem: mem, file: f}, nil
}

// resident reports whether all of at most pieceBytes of a mapping, which begin
// at a page, are in memory. Where the kernel does not say they are not.
func resident(p []byte) bool {
	var there [pieceBytes / minPage]byte
	n := (len(p) + pageBytes - 1) / pageBytes
	_, _, err := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), uintptr(unsafe.Pointer(&there)))
	if err != 0 {
		return false
	}
	for _, in := range there[:n] {
		if in&1 == 0 {
			return false
		}
	}
	return true
}

// GiveBack gives the pages of a part back to the kernel, also those that the
// client has written. The part reads as zeros until it is written again. The
// caller makes sure that nothing is read of it meanwhile that should be there.
func (w *Window) GiveBack(off, n int64) error {
	if err := unix.Fallocate(int(w.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n); err != nil {
		return fmt.Errorf("arena: give back %d bytes of a window at %d: %w", n, off, err)
	}
	return nil
}

// WindowsHuge reports whether the kernel gave huge pages, when it was first
// asked, to shared memory that is advised so, as clients advise their windows.
var WindowsHuge = sync.OnceValue(func() bool {
	text, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
	return err == nil && givesHuge(string(text))
})

// givesHuge reads the choices, of which the chosen one is in brackets.
func givesHuge(choices string) bool {
	_, rest, _ := strings.Cut(choices, "[")
	chosen, _, _ := strings.Cut(rest, "]")
	return slices.Contains([]string{"always", "within_size", "advise", "force"}, chosen)
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
	punched := w.GiveBack(0, int64(len(w.mem)))
	err := errors.Join(punched, pages.Unmap(w.mem), w.file.Close())
	w.mem, w.file = nil, nil
	return err
}
