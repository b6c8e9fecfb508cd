package disk

import (
	"context"
	"errors"
	"slices"

	"github.com/kvstored/kvstored/disk/internal/blockio"
	"github.com/kvstored/kvstored/internal/database"
)

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
	switch stands, err := x.stands(&e); {
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

// stands reports whether the headers bear a record out: that of its extent, or,
// where that is damaged, the payload. A header that is damaged is written anew.
func (x *walk) stands(e *database.Entry) (bool, error) {
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
	w := &pieceRead{done: make(chan error, 1)}
	w.File, w.Off, w.Buf, w.Write, w.End = x.w.seg.file, e.Extent.Offset, page, true, w
	if err = x.w.seg.volume.dev.Submit(&w.Transfer); err == nil {
		err = x.t.wait(x.w.ctx, w.done, &w.Transfer)
	}
	switch {
	case err == nil:
		x.w.seg.unsynced.wrote(e.Seq)
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
	if !x.t.seal.Open(page, x.w.seg.number, at, &h) || !isWhole(&h, x.w.seg.size) {
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

// isWhole reports whether a header speaks of an extent of its segment.
func isWhole(h *database.Header, size int64) bool { return inBounds(&h.Entry, size) && h.Void >= 0 }

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
