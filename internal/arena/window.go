package arena

import (
	"fmt"
	"os"
	"sync/atomic"
)

// Window is a staging area shared with one client, who maps it writable and
// fills it; commit copies from it into the arena. The client may change or
// punch its bytes at any time, also while they are read, so whatever counts is
// computed over the copy. Its size is sealed: reading it never faults.
//
// A mapping that is read where there is no page yet takes one, and the kernel
// charges that to the control group of the reader: clients with large windows
// that they never write could fill the daemon's. So the pages are looked for
// before each copy, and a window in which one is missing is read through its
// descriptor from then on, which finds zeros there and takes nothing. A client
// that punches pages between the two gains at most pieceBytes once, until Close.
type Window struct {
	mem   []byte // mapped read-only
	file  *os.File
	holes atomic.Bool // a page was missing
}

// pieceBytes is how much of a window is looked at before it is copied. What is
// longer than 1 MiB is copied past the caches.
const pieceBytes = 4 << 20

// NewWindow creates a window of n bytes. Its memory is used as the client
// touches it. It is errors.ErrUnsupported where memory cannot be shared.
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

// read copies what the client has written at off, a multiple of the page size;
// bytes it has not written are zero.
func (w *Window) read(p []byte, off int64) error {
	for len(p) > 0 {
		n := min(len(p), pieceBytes)
		src := w.mem[off : off+int64(n)]
		if w.holes.Load() || !resident(src) {
			w.holes.Store(true)
			if _, err := w.file.ReadAt(p[:n], off); err != nil {
				return err
			}
		} else {
			copy(p, src)
		}
		p, off = p[n:], off+int64(n)
	}
	return nil
}

// File is the descriptor to pass to the client. The window owns it.
func (w *Window) File() *os.File { return w.file }
