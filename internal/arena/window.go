package arena

import (
	"fmt"
	"os"
)

// Window is a staging area shared with one client, who maps it writable and
// fills it; commit copies from it into the arena. The client may change or
// punch its bytes at any time, also while they are read, so whatever counts is
// computed over the copy. Its size is sealed: reading it never faults.
type Window struct {
	mem  []byte
	file *os.File
}

// NewWindow creates a window of n bytes. Its memory is used as it is touched.
// It is errors.ErrUnsupported where memory cannot be shared.
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

// Bytes is the window's memory, read-only here; the slice is good until Close.
func (w *Window) Bytes() []byte { return w.mem }

// File is the descriptor to pass to the client. The window owns it.
func (w *Window) File() *os.File { return w.file }
