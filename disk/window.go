package disk

import (
	"context"
	"errors"

	"github.com/zeebo/xxh3"

	"github.com/kvstored/kvstored/disk/internal/blockio"
	"github.com/kvstored/kvstored/internal/database"
)

// window reads a segment from its begin to its end, one piece ahead of the pages
// asked for.
type window struct {
	ctx  context.Context
	t    *instance
	seg  *segment
	now  piece
	next piece
	hash xxh3.Hasher

	unread bool // the last check met a piece that the device cannot read
}

// piece is a piece of a segment, being read or in memory.
type piece struct {
	off  int64
	n    int // 0 = nothing
	buf  []byte
	done chan error // nil when it is here
	x    *pieceRead
}

type pieceRead struct {
	blockio.Transfer
	done chan error
}

func (f *pieceRead) Finish(err error) { f.done <- err }

// page returns the page at off, which is valid until the next call. Nothing
// from to on is asked for soon.
func (w *window) page(off, to int64) ([]byte, error) {
	p, err := w.piece(off, to)
	if err != nil {
		return nil, err
	}
	return p[:alignBytes], nil
}

// piece returns the bytes from off to the end of the piece in memory, a page at
// least.
func (w *window) piece(off, to int64) ([]byte, error) {
	if !w.now.has(off) {
		if err := w.advance(off, to); err != nil {
			return nil, err
		}
	}
	return w.now.buf[off-w.now.off : w.now.n], nil
}

func (f *piece) has(off int64) bool { return off >= f.off && off < f.off+int64(f.n) }

// advance makes now have off, and has the piece behind it read.
func (w *window) advance(off, to int64) error {
	w.now, w.next = w.next, w.now
	if !w.now.has(off) {
		if err := w.await(&w.now); err != nil {
			return err
		}
		w.ask(&w.now, off, to)
	}
	if err := w.await(&w.now); err != nil {
		return err
	}
	w.ask(&w.next, w.now.off+int64(w.now.n), to)
	return nil
}

// ask has the piece at off read, as far as there is any before to.
func (w *window) ask(f *piece, off, to int64) {
	f.off, f.n = off, int(min(blockio.PieceBytes, to-off))
	if f.n <= 0 {
		f.n = 0
		return
	}
	if f.buf == nil {
		f.buf = blockio.AlignedBytes(blockio.PieceBytes)
	}
	x := &pieceRead{done: make(chan error, 1)}
	x.File, x.Off, x.Buf, x.End = w.seg.file, off, f.buf[:f.n], x
	f.done, f.x = x.done, x
	if err := w.seg.volume.dev.Submit(&x.Transfer); err != nil {
		f.done <- err
	}
}

// await waits for a piece. One that the device cannot read has no headers.
func (w *window) await(f *piece) error {
	if f.done == nil {
		return nil
	}
	err := w.t.wait(w.ctx, f.done, &f.x.Transfer)
	f.done = nil
	if err == nil {
		return nil
	}
	if w.ctx.Err() != nil || errors.Is(err, blockio.ErrHung) || !blockio.IsFault(err) {
		f.n, f.buf = 0, nil // the device may write to it yet
		return err
	}
	w.t.trouble.Warn().Err(err).Str("path", w.seg.path).Int64("offset", f.off).Msg("a piece of a segment cannot be read; what begins there is lost")
	clear(f.buf)
	w.unread = true
	return nil
}

// end waits for the piece under way.
func (w *window) end() { _ = w.await(&w.next) }

// check reports whether the payload behind a header has its checksum.
func (w *window) check(h *database.Header) (bool, error) {
	w.hash.Reset()
	w.unread = false
	at, left := h.Extent.Offset+database.HeaderBytes, int64(h.Size)
	for left > 0 {
		p, err := w.piece(at, w.seg.size)
		if err != nil {
			return false, err
		}
		n := min(left, int64(len(p)))
		_, _ = w.hash.Write(p[:n]) // never fails
		at, left = at+n, left-n
	}
	return w.hash.Sum64() == h.Entry.Sum, nil
}
