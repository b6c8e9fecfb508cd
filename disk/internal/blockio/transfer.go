package blockio

import (
	"io"
	"sync/atomic"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/tier"
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
	t.judge(func() { t.Pass.end(tier.CallHung, ErrHung) })
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

// Small payloads that lie side by side, as those of one prompt mostly do, are
// written by one request: a device, and the way to it, take as long over a
// request of 64 KiB as over one that is several times larger. Reads are not
// joined: the Get that waits for the first of them would wait for all.

// lookBehind is how many waiting transfers are searched for a neighbour.
// Concurrent puts do not queue quite in the order of their extents.
const lookBehind = 32

// maxRefused requests of several transfers that failed although each of those
// went well alone mean that the file system takes no such requests, or cuts
// them short: no more are made.
const maxRefused = 3

// vectored is a file that takes several payloads side by side in one request.
type vectored interface {
	// WriteVAt writes ps one after the other from off on.
	WriteVAt(ps [][]byte, off int64) (n int, err error)
}

// neighbours calls with for queued transfers that lie behind t, each wholly,
// as far as they make one request with t's next piece, and returns the bytes
// of that request. with may take its argument out of the queue. The owner
// holds mu.
func (t *Transfer) neighbours(with func(*Transfer)) (bytes int) {
	from, to := t.piece()
	bytes = to - from
	if _, ok := t.File.(vectored); !ok || !t.Write || to < len(t.Buf) || t.Dev.refused.Load() >= maxRefused {
		return bytes
	}
	for end := t.Off + int64(to); ; {
		x := t.neighbour(end, PieceBytes-bytes)
		if x == nil {
			return bytes
		}
		bytes += len(x.Head) + len(x.Buf)
		end += int64(len(x.Head) + len(x.Buf))
		with(x)
	}
}

// neighbour is the transfer of at most so many bytes that begins at end, if
// it comes soon after t in the queue.
func (t *Transfer) neighbour(end int64, bytes int) *Transfer {
	x := t.succ
	for range lookBehind {
		if x == nil {
			break
		}
		if x.begins() == end && x.next == 0 && len(x.Head)+len(x.Buf) <= bytes && x.File == t.File {
			return x
		}
		x = x.succ
	}
	return nil
}

// doTogether does t's piece [from, to) and the whole transfers chained to it
// in one request, and reports whether that went well.
func (t *Transfer) doTogether(from, to int) bool {
	var ps [][]byte
	off := t.Off + int64(from)
	if from == 0 && t.Head != nil {
		ps, off = append(ps, t.Head), t.begins()
	}
	ps = append(ps, t.Buf[from:to])
	for x := t.with; x != nil; x = x.with {
		if x.Head != nil {
			ps = append(ps, x.Head)
		}
		ps = append(ps, x.Buf)
	}
	bytes := 0
	for _, p := range ps {
		bytes += len(p)
	}
	n, err := t.File.(vectored).WriteVAt(ps, off)
	return err == nil && n == bytes
}
