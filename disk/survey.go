package disk

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/zeebo/xxh3"
	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/record"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// survey looks for headers where the database knows of no extent. After an end
// that was not orderly these are of puts that were not acknowledged and of
// extents whose tombstone was not written yet: they get one. Where the database
// was lost they are what there is (adopt), unless a younger one speaks for their
// bytes or for their key, the key was deleted since, or the payload does not
// have its checksum.
//
// Extents are always taken from the front of a run of free bytes, and a header
// speaks for the whole run (record.Header.Void). So whatever is left of older
// headers, or of payloads that hold the like, is covered by a younger header
// that is in front of it and has not been overwritten.
type survey struct {
	t     *Tier
	adopt bool

	mu struct {
		sync.Mutex
		best map[key.Key]record.Entry // of the entries known and found, if they are adopted
		dead []tombstone
	}
	graves map[key.Key]uint64
}

// compare surveys the old segments, of which entries, in order of place, are
// known, and returns the entries with those adopted.
func (t *Tier) compare(ctx context.Context, entries []record.Entry, adopt bool) ([]record.Entry, error) {
	s := &survey{t: t, adopt: adopt}
	t.surveyed.Store(true)
	if err := t.call(ctx, t.metaDev, func() (err error) { s.graves, err = t.db.graves(); return err }, nil); err != nil {
		return nil, err
	}
	s.mu.best = make(map[key.Key]record.Entry)
	if adopt {
		for _, e := range entries {
			s.mu.best[e.Key] = e
		}
		t.log.Warn().Msg("the disk tier's database is made anew from the headers of the segments; that reads all of them")
	}
	var g errgroup.Group
	for _, v := range t.volumes {
		g.Go(func() error { return s.volume(ctx, v, entries) })
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	entries, err := s.take(ctx, entries)
	t.segments.againTombs(s.mu.dead...)
	if err == nil {
		if err = t.bury(ctx); isTrouble(err) || errors.Is(err, tier.ErrOff) {
			err = nil // tried again, by the next start if need be
		}
	}
	return entries, err
}

// volume surveys the segments of one path. A path whose device hangs is left
// to the next start.
func (s *survey) volume(ctx context.Context, v *volume, entries []record.Entry) error {
	for _, seg := range s.t.segments.listOf(v) {
		if s.t.oldSegment(seg.number) == 0 {
			continue
		}
		err := s.segment(ctx, seg, entries)
		if isTrouble(err) {
			s.t.surveyed.Store(false)
			s.t.log.Error().Err(err).Str("path", v.dir).Msg("the headers of a path cannot be read; the next start tries again")
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// take adds what is adopted to entries, and to the database.
func (s *survey) take(ctx context.Context, entries []record.Entry) ([]record.Entry, error) {
	if !s.adopt {
		return entries, nil
	}
	var found []record.Entry
	for _, e := range entries {
		if b, is := s.mu.best[e.Key]; is && b.Seq == e.Seq {
			delete(s.mu.best, e.Key)
		}
	}
	entries = slices.DeleteFunc(entries, func(e record.Entry) bool { // there is a younger one
		_, younger := s.mu.best[e.Key]
		return younger
	})
	for _, e := range s.mu.best {
		found = append(found, e)
	}
	s.t.log.Info().Int("entries", len(found)).Msg("found in the headers of the segments")
	if err := s.t.adoptRecords(ctx, found); err != nil {
		return nil, err
	}
	entries, _ = resolve(append(entries, found...), s.t.oldSegment)
	return entries, nil
}

// adoption writes the records of entries that were found by their headers,
// unless they were deleted or stored anew meanwhile.
type adoption struct {
	entries []record.Entry
	done    chan error
}

func (a *adoption) apply(b *batch) error {
	for i := range a.entries {
		k := record.EntryKey(a.entries[i].Key)
		if err := b.put(&a.entries[i], k[:], make([]byte, 0, record.EntryBytes)); err != nil {
			return err
		}
	}
	return nil
}

func (a *adoption) committed(err error) { a.done <- err }

func (t *Tier) adoptRecords(ctx context.Context, found []record.Entry) error {
	for part := range slices.Chunk(found, maxRemovals) {
		a := &adoption{done: make(chan error, 1)}
		err := t.commits.addWith(func() change {
			for _, e := range part {
				if _, state := t.ledger.Find(e.Key); state == ledger.Absent && !t.scan.forgotten(e.Key) {
					a.entries = append(a.entries, e)
				}
			}
			if len(a.entries) == 0 {
				return nil
			}
			return a
		})
		if err == nil && len(a.entries) > 0 {
			err = t.wait(ctx, a.done, nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unbury ends what a survey was for: all headers say what the database says,
// and survive a power failure where it is to be relied on that they do.
func (t *Tier) unbury(ctx context.Context) error {
	var list map[key.Key]uint64
	if err := t.call(ctx, t.metaDev, func() (err error) { list, err = t.db.graves(); return err }, nil); err != nil {
		return err
	}
	if !t.rebuilds && len(list) == 0 {
		return nil
	}
	if err := t.syncAll(ctx); err != nil {
		return err
	}
	g := &graves{t: t, done: make(chan error, 1)}
	for k, seq := range list {
		if seq < t.commits.first || t.scan.forgotten(k) {
			g.keys = append(g.keys, k)
		}
	}
	if err := t.commits.add(g); err != nil {
		return err
	}
	if err := t.wait(ctx, g.done, nil); err != nil {
		return err
	}
	if t.rebuilds && t.surveyed.Load() {
		if err := os.Remove(filepath.Join(t.o.Meta, rebuildName)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		t.rebuilds = false
	}
	return syncPath(t.o.Meta)
}

// segment surveys the gaps between the entries of one segment.
func (s *survey) segment(ctx context.Context, g *segment, entries []record.Entry) error {
	w := &window{ctx: ctx, t: s.t, seg: g}
	defer w.end()
	from := int64(0)
	first, _ := slices.BinarySearchFunc(entries, g.number, func(e record.Entry, n uint32) int { return int(int64(e.Extent.Segment) - int64(n)) })
	var last record.Entry
	for _, e := range entries[first:] {
		if e.Extent.Segment != g.number {
			break
		}
		if err := s.gap(w, last, from, e.Extent.Offset); err != nil {
			return err
		}
		last, from = e, e.Extent.End()
	}
	return s.gap(w, last, from, g.size)
}

// cover is a header that speaks for all bytes before end that are older.
type cover struct {
	seq uint64
	end int64
}

// gap surveys [from, to), which lies behind the extent of an entry, if any.
func (s *survey) gap(w *window, before record.Entry, from, to int64) error {
	if from >= to {
		return nil
	}
	var covers []cover
	var h record.Header
	if before.Headed && s.adopt {
		page, err := w.page(before.Extent.Offset, before.Extent.Offset+alignBytes)
		if err != nil {
			return err
		}
		if s.t.seal.Open(page, w.seg.number, before.Extent.Offset, &h) {
			covers = append(covers, cover{h.Seq, h.End()})
		}
	}
	for at := from; at < to; {
		page, err := w.page(at, to)
		if err != nil {
			return err
		}
		next := at + alignBytes
		if s.t.seal.Open(page, w.seg.number, at, &h) && isWhole(&h, w.seg.size) && !covered(covers, at, h.Seq) {
			covers = append(slices.DeleteFunc(covers, func(c cover) bool { return c.end <= at }), cover{h.Seq, h.End()})
			if !h.Free {
				if next, err = s.live(w, &h, to); err != nil {
					return err
				}
			}
		}
		at = next
	}
	return nil
}

func covered(covers []cover, at int64, seq uint64) bool {
	return slices.ContainsFunc(covers, func(c cover) bool { return at < c.end && seq < c.seq })
}

// isWhole reports whether a header speaks of an extent of its segment.
func isWhole(h *record.Header, size int64) bool { return inBounds(&h.Entry, size) && h.Void >= 0 }

// live decides about an extent that is not known and returns where to go on.
func (s *survey) live(w *window, h *record.Header, to int64) (next int64, err error) {
	next = h.Extent.Offset + alignBytes
	k := h.Key
	if !s.adopt || w.seg.volume.stale || h.Seq < s.graves[k] || s.t.scan.forgotten(k) || h.Extent.End() > to {
		s.bury(&h.Entry, h.Void)
		return next, nil
	}
	right, err := w.check(h)
	if err != nil {
		return 0, err
	}
	if !right {
		s.t.scan.lost.Add(1)
		s.bury(&h.Entry, h.Void)
		return next, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old, is := s.mu.best[k]
	switch {
	case !is:
	case old.Seq > h.Seq:
		s.mu.dead = append(s.mu.dead, s.tombOf(&h.Entry, h.Void))
		return h.Extent.End(), nil
	case old.Headed && !old.Inline:
		s.mu.dead = append(s.mu.dead, s.tombOf(&old, 0))
	}
	s.mu.best[k] = h.Entry
	return h.Extent.End(), nil
}

func (s *survey) bury(e *record.Entry, void int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.dead = append(s.mu.dead, s.tombOf(e, void))
}

// tombOf is a tombstone that speaks for what the header did, and as late: what
// has come behind it since has a higher number.
func (s *survey) tombOf(e *record.Entry, void int64) tombstone {
	return tombstone{loc: locate(e.Extent, true), n: int64(e.Size), void: void, seq: e.Seq}
}

// window reads a segment from its begin to its end, ahead of what is asked for.
type window struct {
	ctx  context.Context
	t    *Tier
	seg  *segment
	now  fetch
	next fetch
	hash xxh3.Hasher
}

// fetch is a piece of a segment, on its way or here.
type fetch struct {
	off  int64
	n    int // 0 = nothing
	buf  []byte
	done chan error // nil when it is here
	x    *fetching
}

type fetching struct {
	transfer
	done chan error
}

func (f *fetching) finish(err error) { f.done <- err }

// page returns the page at off, which is valid until the next call. Nothing
// from to on is asked for soon.
func (w *window) page(off, to int64) ([]byte, error) {
	p, err := w.piece(off, to)
	if err != nil {
		return nil, err
	}
	return p[:alignBytes], nil
}

// piece returns what is there from off on, a page at least.
func (w *window) piece(off, to int64) ([]byte, error) {
	if !w.now.has(off) {
		if err := w.advance(off, to); err != nil {
			return nil, err
		}
	}
	return w.now.buf[off-w.now.off : w.now.n], nil
}

func (f *fetch) has(off int64) bool { return off >= f.off && off < f.off+int64(f.n) }

// advance makes now have off, and has the piece behind it fetched.
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

// ask has the piece at off fetched, as far as there is any before to.
func (w *window) ask(f *fetch, off, to int64) {
	f.off, f.n = off, int(min(pieceBytes, to-off))
	if f.n <= 0 {
		f.n = 0
		return
	}
	if f.buf == nil {
		f.buf = alignedBytes(pieceBytes)
	}
	x := &fetching{done: make(chan error, 1)}
	x.file, x.off, x.buf, x.end = w.seg.file, off, f.buf[:f.n], x
	f.done, f.x = x.done, x
	if err := w.seg.volume.dev.submit(&x.transfer); err != nil {
		f.done <- err
	}
}

// await waits for a piece. One that the device cannot read has no headers.
func (w *window) await(f *fetch) error {
	if f.done == nil {
		return nil
	}
	err := w.t.wait(w.ctx, f.done, &f.x.transfer)
	f.done = nil
	if err == nil {
		return nil
	}
	if w.ctx.Err() != nil || errors.Is(err, errHung) || !isTrouble(err) {
		f.n, f.buf = 0, nil // the device may write to it yet
		return err
	}
	w.t.trouble.Warn().Err(err).Str("path", w.seg.path).Int64("offset", f.off).Msg("a piece of a segment cannot be read; what begins there is lost")
	clear(f.buf)
	return nil
}

// end waits for what is under way.
func (w *window) end() { _ = w.await(&w.next) }

// check reports whether the payload behind a header has its checksum.
func (w *window) check(h *record.Header) (bool, error) {
	w.hash.Reset()
	at, left := h.Extent.Offset+record.HeaderBytes, int64(h.Size)
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
