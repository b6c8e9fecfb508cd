package disk

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/zeebo/xxh3"
	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/disk/internal/blockio"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// survey compares the headers of the segments with the records of the database.
// After an end that was not orderly the headers that no record knows are of puts
// that were not acknowledged, and of extents whose tombstone was not written
// yet: they get one. Where the database was lost, or is not to be believed, the
// headers decide (adopt): one that no record knows is taken for an
// entry, unless a younger one speaks for its bytes or for its key, the key was
// deleted since, or the payload does not have its checksum; and a record that a
// younger header contradicts is dropped.
//
// Extents are always taken from the front of a run of free bytes, and a header
// speaks for the whole run (database.Header.Void). So the remains of older
// headers, or of payloads that hold the like, are covered by a younger header
// that is in front of them and has not been overwritten.
type survey struct {
	t     *instance
	adopt bool

	mu struct {
		sync.Mutex
		best  map[key.Key]version // of the entries known and found, if they are adopted
		found []database.Entry
		stale []key.Key // of records that a header contradicts
		dead  []tombstone
	}
	deletions map[key.Key]uint64
}

// version is the youngest payload of a key.
type version struct {
	seq  uint64
	loc  location
	size uint32
	seen bool // where loc says
}

func versionOf(e *database.Entry) version {
	if e.Inline {
		return version{seq: e.Seq, loc: inlined, size: e.Size}
	}
	return version{seq: e.Seq, loc: locate(e.Extent), size: e.Size}
}

// compare surveys the old segments, of which entries, in order of place, are
// known, and returns the entries with those adopted and without those
// contradicted.
func (r *recovery) compare(ctx context.Context, entries []database.Entry, adopt bool) ([]database.Entry, error) {
	t := r.t
	s := &survey{t: t, adopt: adopt}
	t.surveyed.Store(true)
	var err error
	if s.deletions, err = ask(ctx, t, t.deletionLog.read); err != nil {
		return nil, err
	}
	s.mu.best = make(map[key.Key]version)
	if adopt {
		for i := range entries {
			s.mu.best[entries[i].Key] = versionOf(&entries[i])
		}
		t.rebuilding.bytes.Store(0)
		t.rebuilding.dropped.Store(0)
		t.rebuilding.total.Store(0) // of an attempt before
		for _, g := range t.segments.all() {
			t.rebuilding.total.Add(uint64(t.segments.oldSize(g.number)))
		}
		t.log.Warn().Int("known", len(entries)).Msg("the disk tier's index is made anew from the headers of the segments, in the background")
	}
	var g errgroup.Group
	for _, v := range t.volumes {
		g.Go(func() error { return s.volume(ctx, v, entries) })
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	entries, err = s.take(ctx, entries)
	t.segments.requeueTombs(s.mu.dead...)
	if err == nil {
		if err = t.tombs.flush(ctx); blockio.IsFault(err) || errors.Is(err, tier.ErrOff) {
			err = nil // tried again, by the next start if need be
		}
	}
	return entries, err
}

// volume surveys the segments of one path. A path whose device hangs is left
// to the next start.
func (s *survey) volume(ctx context.Context, v *volume, entries []database.Entry) error {
	for _, seg := range s.t.segments.listOf(v) {
		if s.t.segments.oldSize(seg.number) == 0 {
			continue
		}
		err := s.segment(ctx, seg, entries)
		if blockio.IsFault(err) {
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

// take adds the adopted entries to entries and to the database, and takes the
// contradicted ones out of both.
func (s *survey) take(ctx context.Context, entries []database.Entry) ([]database.Entry, error) {
	if !s.adopt {
		return entries, nil
	}
	outdated := func(e database.Entry) bool {
		best, is := s.mu.best[e.Key]
		return !is || best.seq != e.Seq
	}
	entries = slices.DeleteFunc(entries, outdated)
	found := slices.DeleteFunc(s.mu.found, outdated)
	s.t.log.Info().Int("entries", len(found)).Int("contradicted", len(s.mu.stale)).Msg("found in the headers of the segments")
	if err := s.t.adoptRecords(ctx, found); err != nil {
		return nil, err
	}
	entries, overlapped := resolve(append(entries, found...), s.t.segments.oldSize)
	return entries, s.t.dropRecords(ctx, without(append(s.mu.stale, overlapped...), entries))
}

func (s *survey) discard(e *database.Entry, void int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.dead = append(s.mu.dead, tombOf(versionOf(e), void))
}

// tombOf is a tombstone that speaks for what the header did, and as late: what
// has come behind it since has a higher number.
func tombOf(v version, void int64) tombstone {
	return tombstone{loc: v.loc, n: int64(v.size), void: void, seq: v.seq}
}

// walk is the survey of one segment, from its begin to its end.
type walk struct {
	*survey
	w      *window
	known  []database.Entry // those from here on, by place
	covers []cover
}

// cover is a header that speaks for all bytes before end that are older.
type cover struct {
	seq uint64
	end int64
}

// segment surveys one segment: the gaps between the entries that are known, and
// where entries are adopted the headers of these too.
func (s *survey) segment(ctx context.Context, g *segment, entries []database.Entry) error {
	x := &walk{survey: s, w: &window{ctx: ctx, t: s.t, seg: g}, known: entriesIn(entries, g.number)}
	defer x.w.end()
	for at := int64(0); at < g.size; {
		next, err := x.step(at)
		if err != nil {
			return err
		}
		if s.adopt {
			s.t.rebuilding.bytes.Add(uint64(next - at))
		}
		at = next
	}
	return nil
}

// entriesIn returns the entries of a segment. They are in order of place.
func entriesIn(entries []database.Entry, segment uint32) []database.Entry {
	by := func(e database.Entry, n uint32) int { return int(int64(e.Extent.Segment) - int64(n)) }
	from, _ := slices.BinarySearchFunc(entries, segment, by)
	to, _ := slices.BinarySearchFunc(entries, segment+1, by)
	return entries[from:to]
}

// step looks for a header or an entry that begins at a page, and returns where to
// go on.
func (x *walk) step(at int64) (next int64, err error) {
	for len(x.known) > 0 && x.known[0].Extent.Offset < at { // adopted was a younger one in its place
		x.contradict(&x.known[0])
		x.known = x.known[1:]
	}
	if len(x.known) == 0 || x.known[0].Extent.Offset > at {
		return x.page(at)
	}
	e := x.known[0]
	x.known = x.known[1:]
	switch stands, err := x.confirmed(&e); {
	case err != nil:
		return 0, err
	case stands:
		return e.Extent.End(), nil
	}
	x.contradict(&e)
	return x.page(at)
}

// gapEnd is where the next entry that is known begins.
func (x *walk) gapEnd() int64 {
	if len(x.known) > 0 {
		return x.known[0].Extent.Offset
	}
	return x.w.seg.size
}

// confirmed reports whether the headers bear a record out: that of its extent, or,
// where that is damaged, the payload. A header that is damaged is written anew.
func (x *walk) confirmed(e *database.Entry) (bool, error) {
	at := e.Extent.Offset
	switch {
	case !x.adopt:
		x.covers = nil
		return true, nil
	case x.covered(at, e.Seq):
		return false, nil
	}
	var h database.Header
	page, err := x.w.page(at, at+alignBytes)
	if err != nil {
		return false, err
	}
	if x.t.seal.Open(page, x.w.seg.number, at, &h) && h.Seq >= e.Seq {
		if h.Seq > e.Seq || h.Free || !x.youngest(e) {
			return false, nil
		}
		x.cover(&h)
		return true, nil
	}
	return x.reseal(e)
}

// youngest reports whether no younger payload of an entry's key was found, and
// notes that the entry is where its record says.
func (x *walk) youngest(e *database.Entry) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	v := x.mu.best[e.Key]
	if v.seq != e.Seq {
		return false
	}
	v.seen = true
	x.mu.best[e.Key] = v
	return true
}

// reseal writes a header over one that is damaged, if the payload behind it is
// that of the record. How many bytes were free behind the extent when it was taken
// is not known: no older header counts up to the next entry. Where the device
// cannot read the payload the header stays as it is.
func (x *walk) reseal(e *database.Entry) (right bool, err error) {
	h := database.Header{Entry: *e, Void: x.gapEnd() - e.Extent.End()}
	x.cover(&h)
	right, err = x.w.check(&h)
	switch {
	case err != nil:
		return false, err
	case x.w.unread:
		return x.youngest(e), nil
	case !right:
		x.discard(e, h.Void)
		return false, nil
	case !x.youngest(e):
		return false, nil
	}
	page := blockio.AlignedBytes(database.HeaderBytes) // the device's, where it hangs
	x.t.seal.Seal(page, &h)
	w := newWork()
	w.File, w.Off, w.Buf, w.Write = x.w.seg.file, e.Extent.Offset, page, true
	w.submit(x.w.seg.volume.dev)
	err = x.t.wait(x.w.ctx, w.done, &w.Transfer)
	switch {
	case err == nil:
		x.w.seg.syncState.wrote(e.Seq)
	case errors.Is(err, blockio.ErrHung) || !blockio.IsFault(err):
		return false, err
	default:
		x.t.trouble.Warn().Err(err).Str("path", x.w.seg.path).Int64("offset", w.Off).Msg("a damaged header cannot be written anew")
	}
	return true, nil
}

// contradict drops a record: younger headers say that its extent was freed.
func (x *walk) contradict(e *database.Entry) {
	x.t.rebuilding.dropped.Add(1)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.mu.best[e.Key].seq == e.Seq {
		delete(x.mu.best, e.Key)
	}
	x.mu.stale = append(x.mu.stale, e.Key)
}

// page looks for a header that no record knows.
func (x *walk) page(at int64) (next int64, err error) {
	page, err := x.w.page(at, x.gapEnd())
	if err != nil {
		return 0, err
	}
	var h database.Header
	next = at + alignBytes
	if !x.t.seal.Open(page, x.w.seg.number, at, &h) || !inBounds(&h.Entry, x.w.seg.size) || h.Void < 0 {
		return next, nil
	}
	if x.covered(at, h.Seq) {
		return next, nil
	}
	x.cover(&h)
	if h.Free {
		return next, nil
	}
	return x.live(&h)
}

func (x *walk) cover(h *database.Header) {
	x.covers = slices.DeleteFunc(x.covers, func(c cover) bool { return c.end <= h.Extent.Offset })
	x.covers = append(x.covers, cover{h.Seq, h.End()})
}

func (x *walk) covered(at int64, seq uint64) bool {
	return slices.ContainsFunc(x.covers, func(c cover) bool { return at < c.end && seq < c.seq })
}

// live decides about an extent that no record knows and returns where to go on.
func (x *walk) live(h *database.Header) (next int64, err error) {
	next = h.Extent.Offset + alignBytes
	k := h.Key
	if !x.adopt || x.w.seg.volume.stale || h.Seq < x.deletions[k] || x.t.scan.isDeleted(k) || x.overlapsYounger(h) {
		x.discard(&h.Entry, h.Void)
		return next, nil
	}
	right, err := x.w.check(h)
	if err != nil {
		return 0, err
	}
	if !right {
		x.t.rebuilding.dropped.Add(1)
		x.discard(&h.Entry, h.Void)
		return next, nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	old, is := x.mu.best[k]
	switch {
	case !is:
	case old.seq > h.Seq:
		x.mu.dead = append(x.mu.dead, tombOf(versionOf(&h.Entry), h.Void))
		return h.Extent.End(), nil
	case old.seen && !old.loc.inline(): // else it has its turn
		x.mu.dead = append(x.mu.dead, tombOf(old, 0))
	}
	young := versionOf(&h.Entry)
	young.seen = true
	x.mu.best[k] = young
	x.mu.found = append(x.mu.found, h.Entry)
	return h.Extent.End(), nil
}

// overlapsYounger reports whether an entry that is known has some of the bytes,
// and a higher number.
func (x *walk) overlapsYounger(h *database.Header) bool {
	for i := range x.known {
		if x.known[i].Extent.Offset >= h.Extent.End() {
			break
		}
		if x.known[i].Seq > h.Seq {
			return true
		}
	}
	return false
}

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
	read *work // nil when it is here
}

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
	f.read = newWork()
	f.read.File, f.read.Off, f.read.Buf = w.seg.file, off, f.buf[:f.n]
	f.read.submit(w.seg.volume.dev)
}

// await waits for a piece. One that the device cannot read has no headers.
func (w *window) await(f *piece) error {
	if f.read == nil {
		return nil
	}
	err := w.t.wait(w.ctx, f.read.done, &f.read.Transfer)
	f.read = nil
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

// rebuilding is how far a rebuild of the index is: of total bytes, 0 while there is
// none. dropped is the payloads that were not taken, or not any more.
type rebuilding struct{ bytes, total, dropped atomic.Uint64 }
