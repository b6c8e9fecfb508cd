package disk

import (
	"context"
	"slices"

	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
)

const (
	// shortLooks in a row that find a file system below its floor mean that
	// others need the room. One may come between a table that the database
	// has just written and the one that it is about to remove.
	shortLooks = 3
	// emptyBatch is how many records are read at a time.
	emptyBatch = 4096
)

// files empties a segment of each file system that others have filled
// below its floor (space.floor), so that the segment's file can go. It evicts
// all entries there: extents of one age lie in all segments, and none is ever
// moved. From then on new segments leave the size of one more, so that the
// space given back is not taken again at once. It appends the evicted keys to
// out. It reads the whole database, so a call does nothing during another.
func (v reclaim) files(ctx context.Context, out []key.Key) ([]key.Key, error) {
	t := v.t
	if t.scan.active.Load() || !t.emptying.CompareAndSwap(false, true) {
		return out, nil
	}
	defer t.emptying.Store(false)
	for _, f := range t.volumes.fileSystems() {
		if f.short.Load() < shortLooks {
			continue
		}
		g := t.segments.leastUsed(f)
		if g == nil {
			continue
		}
		before := len(out)
		f.slack.Store(t.o.SegmentBytes)
		var err error
		out, err = v.empty(ctx, g, everything, out)
		t.count.evictedFree.Add(uint64(len(out) - before))
		t.log.Warn().Err(err).Str("path", g.volume.dir).Int64("bytes", g.blocks).Int("evicted", len(out)-before).
			Int64("free", f.available.Load()).Int64("to_stay_free", t.space.floor(f)).
			Msg("others fill the file system beyond disk.min_free or what the database needs: a segment of the disk tier is given back")
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// leastUsed closes the segment with the least in it to new extents and returns
// it; one that is closed already comes before the others. nil if there is none,
// or one is empty and about to be removed. A nil f stands for all file systems.
func (s *segments) leastUsed(f *fileSystem) (least *segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.volumes {
		if f != nil && v.fs != f {
			continue
		}
		for _, g := range v.list {
			if g.draining && g.used() == 0 {
				return nil
			}
			if g.draining {
				return g
			}
			if g.free != nil && (least == nil || g.used() < least.used()) {
				least = g
			}
		}
	}
	if least != nil {
		least.draining = true
	}
	return least
}

// reopen takes the segments of a file system back that were closed and are not
// empty yet.
func (s *segments) reopen(f *fileSystem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.volumes {
		for _, g := range v.list {
			if v.fs == f && g.draining && g.used() > 0 {
				g.draining = false
			}
		}
	}
}

// empty evicts what lies in g and is to go. It reads the whole database. A Put
// that was under way when g was closed may put one more there, which goes with
// the next call.
func (v reclaim) empty(ctx context.Context, g *segment, goes func(*database.Entry) bool, out []key.Key) ([]key.Key, error) {
	t := v.t
	there := func(e *database.Entry) bool { return !e.Inline && e.Extent.Segment == g.number && goes(e) }
	for from := (key.Key{}); ; {
		ks, err := ask(ctx, t, func() (metadata.Keys, error) { return t.db.KeysAfter(from, emptyBatch, there) })
		if err == nil {
			out, err = v.evictFrom(ctx, g, ks.Wanted, out)
		}
		if err != nil || ks.Last == from {
			return out, err
		}
		from = ks.Last
	}
}

func everything(*database.Entry) bool { return true }

// evictFrom evicts those of ks that still lie in g, and returns when their
// extents are free or held by a reader.
func (v reclaim) evictFrom(ctx context.Context, g *segment, ks, out []key.Key) ([]key.Key, error) {
	t := v.t
	for part := range slices.Chunk(ks, maxRemovals) {
		if err := t.db.Works(); err != nil {
			return out, err
		}
		r, err := t.remove(ctx, func(r *removal) {
			for _, k := range part {
				e, state := t.ledger.Find(k)
				if state == ledger.Resident && location(e.Value.A).segment() == g.number {
					t.takeOut(r, []key.Key{k})
				}
			}
		})
		out = append(out, r.keys...)
		if err == nil {
			err = t.tombs.flush(ctx)
		}
		if err != nil {
			return out, err
		}
	}
	return out, nil
}
