package disk

import (
	"io"
	"sync/atomic"

	"github.com/kvstored/kvstored/internal/arena"
)

// transfer is one payload on its way between a block and a file, or, with call
// set, any other work that may hang with the device. The device owns it from
// submit until it has called end.finish.
type transfer struct {
	file  file
	off   int64
	buf   []byte      // of block
	head  []byte      // goes to the file before buf, in one request with its first piece; or nil
	block arena.Block // retained while the device owns the transfer
	call  func() error
	write bool
	end   finisher

	next       int // offset in buf of the first piece not taken
	flying     int // pieces in the kernel
	err        error
	queued     bool
	prev, succ *transfer
	with       *transfer // is in the same request as the last piece

	dev  *device     // it was submitted to
	over atomic.Bool // finished
}

// finisher is told once, without a lock held, that no piece is or will be
// under way: memory and extent may be reused.
type finisher interface{ finish(err error) }

// piece is the next one.
func (t *transfer) piece() (from, to int) { return t.next, min(t.next+pieceBytes, len(t.buf)) }

// weight is what a piece counts for.
func (t *transfer) weight(from, to int) int {
	if t.call != nil {
		return pieceBytes
	}
	return to - from
}

// request is the weight of the next one, with what goes along.
func (t *transfer) request() int {
	if t.call != nil {
		return pieceBytes
	}
	return t.neighbours(func(*transfer) {})
}

func (t *transfer) do(from, to int) error {
	if t.call != nil {
		return t.call()
	}
	p, off := t.buf[from:to], t.off+int64(from)
	var n int
	var err error
	if t.write && from == 0 && t.head != nil {
		n, err = t.writeHeaded(p)
	} else if t.write {
		n, err = t.file.WriteAt(p, off)
	} else {
		n, err = t.file.ReadAt(p, off)
	}
	switch {
	case n == len(p):
		return nil // ReadAt may say EOF with the last byte
	case err == nil || err == io.EOF:
		return io.ErrUnexpectedEOF
	}
	return err
}

// writeHeaded writes the header and the first piece. It returns the bytes of
// the piece that were written.
func (t *transfer) writeHeaded(p []byte) (n int, err error) {
	if f, ok := t.file.(vectored); ok && t.dev.refused.Load() < maxRefused {
		if n, _ = f.WriteVAt([][]byte{t.head, p}, t.begins()); n == len(t.head)+len(p) {
			return len(p), nil
		}
	}
	// One by one, so that each has its own answer.
	if n, err = t.file.WriteAt(t.head, t.begins()); n < len(t.head) {
		return 0, err
	}
	return t.file.WriteAt(p, t.off)
}

// begins is where in the file the transfer does, with its header.
func (t *transfer) begins() int64 { return t.off - int64(len(t.head)) }

func (t *transfer) finish() {
	if t.block.Valid() {
		t.block.Release()
	}
	t.over.Store(true)
	t.end.finish(t.err)
}

// queue is a list of transfers with pieces left to take.
type queue struct {
	head, tail *transfer
	n          int
}

func (q *queue) push(t *transfer) {
	t.queued, t.prev, t.succ = true, q.tail, nil
	if q.tail != nil {
		q.tail.succ = t
	} else {
		q.head = t
	}
	q.tail = t
	q.n++
}

func (q *queue) remove(t *transfer) {
	if t.prev != nil {
		t.prev.succ = t.succ
	} else {
		q.head = t.succ
	}
	if t.succ != nil {
		t.succ.prev = t.prev
	} else {
		q.tail = t.prev
	}
	t.queued, t.prev, t.succ = false, nil, nil
	q.n--
}
