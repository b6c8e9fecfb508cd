package blockio

import (
	"io"
	"sync/atomic"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/tier/breaker"
)

// Transfer is one payload on its way between a block and a file, or, with Call
// set, any other work that may hang with the device. The device owns it from
// Submit until it has called End.Finish. The caller of Submit sets the exported
// fields but Dev and Over before, and changes none of them after that.
type Transfer struct {
	File  File
	Off   int64
	Buf   []byte      // of block
	Head  []byte      // goes to the file before buf, in one request with its first piece; or nil
	Block arena.Block // retained while the device owns the transfer
	Call  func() error
	Write bool
	Pass  Pass // of the direction it goes in; Submit asks for one where there is none
	End   Finisher
	Came  Lander // told of each piece that was read; or nil

	next       int // offset in buf of the first piece not taken
	flying     int // pieces in the kernel
	err        error
	queued     bool
	prev, succ *Transfer
	with       *Transfer // is in the same request as the last piece

	Dev    *Device     // it was submitted to
	Over   atomic.Bool // finished
	judged atomic.Bool // its pass is ended
}

// Finisher is told once, without a lock held, that no piece is or will be
// under way: memory and extent may be reused.
type Finisher interface{ Finish(err error) }

// Lander is told of pieces as they have been read, without a lock held, before the
// Finisher. They come in any order, and several at a time.
type Lander interface{ Landed(from, to int) }

// piece is the next one.
func (t *Transfer) piece() (from, to int) { return t.next, min(t.next+PieceBytes, len(t.Buf)) }

// weight is how many bytes a piece counts for; a Call counts as a whole piece.
func (t *Transfer) weight(from, to int) int {
	if t.Call != nil {
		return PieceBytes
	}
	return to - from
}

// request is the weight of the next request in bytes, with the neighbours that
// go along.
func (t *Transfer) request() int {
	if t.Call != nil {
		return PieceBytes
	}
	return t.neighbours(func(*Transfer) {})
}

func (t *Transfer) do(from, to int) error {
	if t.Call != nil {
		return t.Call()
	}
	p, off := t.Buf[from:to], t.Off+int64(from)
	var n int
	var err error
	if t.Write && from == 0 && t.Head != nil {
		n, err = t.writeHeaded(p)
	} else if t.Write {
		n, err = t.File.WriteAt(p, off)
	} else {
		n, err = t.File.ReadAt(p, off)
	}
	switch {
	case n == len(p): // ReadAt may say EOF with the last byte
		if t.Came != nil {
			t.Came.Landed(from, to)
		}
		return nil
	case err == nil || err == io.EOF:
		return io.ErrUnexpectedEOF
	}
	return err
}

// writeHeaded writes the header and the first piece. It returns the bytes of
// the piece that were written.
func (t *Transfer) writeHeaded(p []byte) (n int, err error) {
	if f, ok := t.File.(vectored); ok && t.Dev.refused.Load() < maxRefused {
		if n, _ = f.WriteVAt([][]byte{t.Head, p}, t.begins()); n == len(t.Head)+len(p) {
			return len(p), nil
		}
	}
	// One by one, so that each has its own answer.
	if n, err = t.File.WriteAt(t.Head, t.begins()); n < len(t.Head) {
		return 0, err
	}
	return t.File.WriteAt(p, t.Off)
}

// begins is where in the file the transfer does, with its header.
func (t *Transfer) begins() int64 { return t.Off - int64(len(t.Head)) }

func (t *Transfer) finish() {
	if t.Block.Valid() {
		t.Block.Release()
	}
	t.judge(func() { t.Pass.End(t.err) })
	t.Over.Store(true)
	t.End.Finish(t.err)
}

// Hung turns the direction of t off at once: it has outlasted the I/O timeout.
func (t *Transfer) Hung() {
	t.judge(func() { t.Pass.end(breaker.Hung, ErrHung) })
}

// judge ends the pass, once.
func (t *Transfer) judge(end func()) {
	if t.judged.CompareAndSwap(false, true) {
		end()
	}
}

// queue is a list of transfers with pieces left to take.
type queue struct {
	head, tail *Transfer
	n          int
}

func (q *queue) push(t *Transfer) {
	t.queued, t.prev, t.succ = true, q.tail, nil
	if q.tail != nil {
		q.tail.succ = t
	} else {
		q.head = t
	}
	q.tail = t
	q.n++
}

func (q *queue) remove(t *Transfer) {
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
