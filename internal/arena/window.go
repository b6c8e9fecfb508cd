package arena

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Window is a staging area shared with one client, who maps it writable and
// fills it; commit copies from it into the arena. The client may change or
// punch its bytes at any time, also while they are read, so every checksum is
// computed over the copy. Its size is sealed: reading it never faults.
//
// A mapping that is read where there is no page yet takes one, and the kernel
// charges that to the control group of the reader: clients with large windows
// that they never write could fill the daemon's. So the pages are looked for
// before each copy, and a piece in which one is missing is read through the
// descriptor of the window, which finds zeros there and takes nothing.
//
// A client that punches pages between the look and the copy gains pieceBytes
// until Close, and each look that finds a page missing may be such an attempt
// that came too early. So after one the next pieces are read through the
// descriptor too, though all their pages are there: one piece after the first
// time, and twice as many each time, up to maxWary.
type Window struct {
	mem  []byte // mapped read-only
	file *os.File
	// wary is how many pieces are still to be read through the descriptor; last
	// is how many were, when a page was missing last.
	wary, last atomic.Int32
}

// maxWary bounds wary: a client that gains pages by chance has 256 GiB copied for
// each attempt but the first few.
const maxWary = 64 << 10

// pieceBytes is how much of a window is looked at before it is copied.
const pieceBytes = 4 << 20

// NewWindow creates a window of n bytes. Its memory is used as the client
// touches it.
func NewWindow(n int64) (*Window, error) {
	if n <= 0 || n > MaxWindow {
		return nil, fmt.Errorf("arena: window of %d bytes: want 1 to %d", n, int64(MaxWindow))
	}
	w, err := newWindow(n)
	if err != nil {
		return nil, fmt.Errorf("arena: window: %w", err)
	}
	return w, nil
}

// MaxWindow is the largest window in bytes: a bound on what one client can
// make the daemon map.
const MaxWindow = 16 << 30

// LookBytes bounds what one Look is about.
const LookBytes = 1 << 20

// Look is a part of a window whose pages were all there when they were looked for.
// It serves for a copy at once after that; the zero Look is of no part.
type Look struct{ from, to int64 }

// Look looks for the pages of n bytes at off, a multiple of the page size. Values
// that lie one behind the other are looked for together: each question takes the
// kernel as long as copying some KiB.
func (w *Window) Look(off, n int64) Look {
	if n > LookBytes || w.wary.Load() > 0 || !resident(w.mem[off:off+n]) {
		return Look{}
	}
	return Look{off, off + n}
}

// read copies what the client has written at off, a multiple of the page size,
// and returns the checksum of the copy; bytes it has not written are zero. The part
// of l is not looked at again.
func (w *Window) read(p []byte, off int64, l Look) (uint64, error) {
	sum := SumOver(p)
	for len(p) > 0 {
		n := min(len(p), pieceBytes)
		src := w.mem[off : off+int64(n)]
		if seen := l.from <= off && off+int64(n) <= l.to; !seen && !w.mapped(src) {
			if _, err := w.file.ReadAt(p[:n], off); err != nil {
				return 0, err
			}
			sum.Arrived(n)
		} else {
			sum.Copy(src)
		}
		p, off = p[n:], off+int64(n)
	}
	return sum.Sum(), nil
}

// mapped reports whether a piece may be read where it is mapped.
func (w *Window) mapped(piece []byte) bool {
	wary := w.wary.Load()
	if resident(piece) {
		if wary > 0 {
			w.wary.CompareAndSwap(wary, wary-1) // else another reader has seen a hole just now
		}
		return wary == 0
	}
	if wary == 0 {
		w.last.Store(min(max(1, 2*w.last.Load()), maxWary))
	}
	w.wary.Store(w.last.Load())
	return false
}

// File is the descriptor to pass to the client. The window owns it.
func (w *Window) File() *os.File { return w.file }

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
	mem, err := MapHuge(f, n, false)
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
	err := errors.Join(punched, Unmap(w.mem), w.file.Close())
	w.mem, w.file = nil, nil
	return err
}
