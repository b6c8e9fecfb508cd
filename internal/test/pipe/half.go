package pipe

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// half is one direction of a connection.
type half struct {
	mu sync.Mutex
	// changed wakes all that wait when anything below has changed.
	changed sync.Cond
	buf     []byte
	room    int   // bytes that buf may have
	sent    int64 // bytes that were ever written
	read    int64 // bytes that were ever read
	passed  []parcel
	ended   bool // no more is sent: the reader gets what is there, then EOF
	closed  bool // the writer has closed its end
	refused bool // the reader has closed its end
	reads   deadline
	writes  deadline
}

// parcel is the files that came with one byte.
type parcel struct {
	at    int64 // of that byte, counted from the first
	files []*os.File
}

// deadline is when calls of one kind end with os.ErrDeadlineExceeded.
type deadline struct {
	timer *time.Timer // nil: none is set
	over  bool
}

func newHalf(room int) *half {
	h := &half{room: room}
	h.changed.L = &h.mu
	return h
}

// set sets d, one of h's. The zero time is no deadline.
func (h *half) set(d *deadline, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.over = false
	if !at.IsZero() {
		left := time.Until(at)
		if d.over = left <= 0; !d.over {
			var timer *time.Timer
			timer = time.AfterFunc(left, func() {
				h.mu.Lock()
				defer h.mu.Unlock()
				if d.timer == timer { // else another was set meanwhile
					d.over = true
					h.changed.Broadcast()
				}
			})
			d.timer = timer
		}
	}
	h.changed.Broadcast()
}

// tryRead reads the bytes that have come, up to the next parcel of files, which want takes
// along and others lose, as with a socket. Without any it is EAGAIN.
func (h *half) tryRead(p []byte, want bool) (n int, files []*os.File, err error) {
	switch {
	case h.refused:
		return 0, nil, net.ErrClosed
	case h.reads.over:
		return 0, nil, os.ErrDeadlineExceeded
	case len(h.buf) == 0 && h.ended:
		return 0, nil, io.EOF
	case len(h.buf) == 0:
		return 0, nil, syscall.EAGAIN
	}
	if len(h.passed) > 0 && h.passed[0].at == h.read {
		files = h.passed[0].files
		h.passed = h.passed[1:]
		if !want {
			closeAll(files)
			files = nil
		}
	}
	there := len(h.buf)
	if len(h.passed) > 0 {
		there = int(min(int64(there), h.passed[0].at-h.read))
	}
	n = copy(p, h.buf[:there])
	h.buf = h.buf[:copy(h.buf, h.buf[n:])]
	h.read += int64(n)
	h.changed.Broadcast()
	return n, files, nil
}

// tryWrite writes as much as there is room for. Without room it is EAGAIN.
func (h *half) tryWrite(p []byte, files []*os.File) (n int, err error) {
	switch {
	case h.closed:
		return 0, net.ErrClosed
	case h.ended, h.refused:
		return 0, syscall.EPIPE
	case h.writes.over:
		return 0, os.ErrDeadlineExceeded
	case len(h.buf) >= h.room:
		return 0, syscall.EAGAIN
	}
	if len(files) > 0 {
		h.passed = append(h.passed, parcel{h.sent, files})
	}
	n = min(len(p), h.room-len(h.buf))
	h.buf = append(h.buf, p[:n]...)
	h.sent += int64(n)
	h.changed.Broadcast()
	return n, nil
}

// await calls try until it is not EAGAIN.
func (h *half) await(try func() error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		if err := try(); err != syscall.EAGAIN {
			return err
		}
		h.changed.Wait()
	}
}

// once calls try.
func (h *half) once(try func() error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return try()
}

// end ends the direction; the reader still gets all bytes that were sent.
func (h *half) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	h.changed.Broadcast()
}

// close closes the writer's end.
func (h *half) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended, h.closed = true, true
	h.changed.Broadcast()
}

// refuse closes the reader's end. Its unread bytes are gone.
func (h *half) refuse() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refused, h.buf = true, nil
	for _, p := range h.passed {
		closeAll(p.files)
	}
	h.passed = nil
	h.changed.Broadcast()
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // a duplicate of ours
	}
}
