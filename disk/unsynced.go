package disk

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/database"
)

// errDoubted says that a segment may lack entries that were written to it.
var errDoubted = errors.New("a segment could not be synced; what was written to it since it last was counts as not written")

// unsynced tells from which write on a segment is not known to be synced. The
// kernel says once that it could not write a page, and takes it for written from
// then on, so after a sync that failed the next one proves nothing about the
// writes before: their entries are doubted, and dropped.
//
//	clean --a write ends--> dirty --sync--> clean
//	                          |
//	                          +--sync fails--> doubted --dropped, and free
//	                                           space covered anew--> dirty
//
// A Sync that finds a doubted segment drops first, and fails where it cannot.
type unsynced struct {
	since atomic.Uint64 // the lowest number of a write since; 0: none
	fails atomic.Uint64 // syncs that failed

	// Guarded by segments.mu.
	doubted span
}

// span is a range of sequence numbers, both ends included; the zero span is empty.
type span struct{ from, to uint64 }

func (s span) has(e *database.Entry) bool { return s.from <= e.Seq && e.Seq <= s.to }

// wrote notes a write that has ended, under its number. It is called before
// anything else learns that the write has ended.
func (u *unsynced) wrote(seq uint64) {
	seq = max(seq, 1) // 0 is nothing
	for {
		since := u.since.Load()
		if since != 0 && since <= seq || u.since.CompareAndSwap(since, seq) {
			return
		}
	}
}

// sync makes what v's files hold survive a power failure, and their names. One
// call of a volume is at work at a time: the kernel tells one of several that
// sync a file that pages of it are lost.
func (s *segments) sync(v *volume) error {
	for _, g := range s.listOf(v) {
		since := g.unsynced.since.Swap(0)
		if since == 0 {
			continue
		}
		if err := g.file.Sync(); err != nil {
			if s.isRemoved(g) {
				continue // its file was closed, and holds nothing
			}
			g.unsynced.wrote(since)
			s.doubt(g)
			return fmt.Errorf("%s: %w: %w", g.path, errDoubted, err)
		}
	}
	return v.at.Sync()
}

// isRemoved reports whether g has left the list, as it does before its file is
// closed.
func (s *segments) isRemoved(g *segment) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find(g.number) != g
}

// doubt notes that what g was written may not be there. A write that ends later
// finds that a sync has failed since it began.
func (s *segments) doubt(g *segment) {
	s.syncFails.Add(1)
	g.unsynced.fails.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	from := g.unsynced.since.Load()
	if g.unsynced.doubted.from != 0 {
		from = min(from, g.unsynced.doubted.from)
	}
	g.unsynced.doubted = span{from, s.seq.Load()}
}

// doubted are the segments in doubt, and what of them is.
func (s *segments) doubted() (list []*segment, spans []span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.volumes {
		for _, g := range v.list {
			if g.unsynced.doubted.from != 0 {
				list, spans = append(list, g), append(spans, g.unsynced.doubted)
			}
		}
	}
	return list, spans
}

// resolved ends the doubt in g, unless it has become another one.
func (s *segments) resolved(g *segment, was span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.unsynced.doubted == was {
		g.unsynced.doubted = span{}
	}
}

// coverFree has each free run of g covered by a new tombstone: the one that
// covers it now may not be on the device, and an older header there, of a deleted
// entry, would count when the database is lost.
func (s *segments) coverFree(g *segment) {
	type run struct{ off, n int64 }
	var runs []run
	s.mu.Lock()
	for g.free != nil {
		n := min(g.free.LargestFree(), arena.RoundDown(math.MaxUint32))
		off, ok := g.free.Alloc(n)
		if !ok {
			break
		}
		runs = append(runs, run{off, n})
	}
	for _, r := range runs { // one page holds no header of an extent
		if r.n <= database.HeaderBytes {
			g.free.Free(r.off, r.n)
		}
	}
	s.mu.Unlock()
	for _, r := range runs {
		if r.n > database.HeaderBytes {
			s.free(locate(database.Extent{Segment: g.number, Offset: r.off}), r.n-database.HeaderBytes)
		}
	}
}

// hasFailed reports whether a sync of a write's segment has failed since the
// write began.
func (w *writing) hasFailed() bool {
	return w.seg != nil && w.seg.unsynced.fails.Load() != w.fails
}
