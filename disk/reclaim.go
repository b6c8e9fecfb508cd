package disk

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// leastExtra is how many entries may go at least so that an extent fits in one piece: a
// few that are smaller than it, such as the windows of a hybrid model among its full
// chunks, say nothing of the next ones.
const leastExtra = 64

// reclaim makes room, one at a time, in this order:
//
//   - files: for others on a file system, a segment is emptied
//   - quotas: spaces that are over theirs
//   - entries: for the bound on their number
//   - database: deleted records, then a segment, then entries
//   - extents: entries by the policy, under the watermarks and for one piece
//
// Each call that makes room has its own.
type reclaim struct {
	t        *instance
	restores bool      // on behalf of recovery, which is the only one to evict before it has ended
	gone     []key.Key // evicted
}

// Trim reclaims room for a payload of n bytes. It evicts by the tier's policy until that
// fits under the high watermark; when it has to start it goes on to the low one. It then
// evicts one at a time until n bytes fit in one piece, if a payload can be that large, up
// to four times n and leastExtra entries. With n = 0 it also gives room back to others,
// unless another Trim is at that. It appends the evicted keys to out, also when it fails.
// While recovery runs no entry is evicted, and while the database takes no deletions Trim
// is an error: the evicted entries would be lost for no room.
func (t *Tier) Trim(ctx context.Context, n int64, out []key.Key) ([]key.Key, error) {
	out, err := t.now.Load().trim(ctx, n, out)
	return out, t.failed("trim", err)
}

func (t *instance) trim(ctx context.Context, n int64, out []key.Key) ([]key.Key, error) {
	r := &reclaim{t: t, gone: out}
	err := t.usable(ctx)
	if err == nil {
		err = t.db.Works()
	}
	if err == nil && n == 0 {
		err = r.files(ctx)
	}
	if err == nil {
		err = r.trim(ctx, n)
	}
	return r.gone, err
}

func (r *reclaim) trim(ctx context.Context, n int64) error {
	t := r.t
	if err := t.trimming.take(ctx, t.ended); err != nil {
		return err
	}
	defer t.trimming.leave()
	counter := &t.count.evictedRoom
	if n == 0 {
		counter = &t.count.evictedAhead
	}
	defer r.counts(counter)()
	if n > 0 && extentBytes(n) > t.o.CapacityBytes-t.o.MetaReserveBytes {
		return tier.ErrTooLarge
	}
	err := r.quotas(ctx)
	if err == nil {
		err = r.entries(ctx, n)
	}
	if err == nil {
		err = r.database(ctx, r.databaseRoom(n))
	}
	if err != nil {
		return err
	}
	if n <= t.o.InlineMax {
		return r.extents(ctx, 0)
	}
	return r.extents(ctx, extentBytes(n))
}

// counts adds the entries evicted between the call and that of done to a counter.
func (r *reclaim) counts(c *atomic.Uint64) (done func()) {
	before := len(r.gone)
	return func() { c.Add(uint64(len(r.gone) - before)) }
}

// quotas evicts entries until no quota is exceeded, or none can be evicted.
func (r *reclaim) quotas(ctx context.Context) (err error) {
	l := r.t.ledger
	for freed := int64(1); freed > 0 && err == nil && l.OverQuota(); {
		freed, err = r.evict(ctx, math.MaxInt64, heldFor, l.EvictOver)
	}
	return err
}

// excessEntries is excess in entries: how many must be evicted before n more are under the
// mark.
func (s *headroom) excessEntries(n int, started bool) int {
	if s.t.o.Entries == 0 {
		return -math.MaxInt
	}
	return s.t.o.Entries - ledger.FreeEntries(s.t.ledger) + n - max(int(s.mark(int64(s.t.o.Entries), started)), n)
}

// entries evicts until there are few enough entries, one for a payload of n bytes
// included, as extents does for bytes.
func (r *reclaim) entries(ctx context.Context, n int64) error {
	t := r.t
	defer r.counts(&t.count.evictedEntries)()
	room := 0
	if n > 0 {
		room = 2 // it may need a hole for its parent
	}
	for started := false; ; started = true {
		want := t.headroom.excessEntries(room, started)
		if want <= 0 {
			return nil
		}
		freed, err := r.evict(ctx, int64(want), func(ledger.Entry) int64 { return 1 }, t.ledger.Evict)
		switch {
		case err != nil:
			return err
		case freed == 0 && ledger.FreeEntries(t.ledger) < room:
			return tier.ErrNoSpace
		case freed == 0:
			return nil
		}
	}
}

// extents evicts until an extent of n bytes fits under a watermark and, if one can
// be that large, in one piece.
func (r *reclaim) extents(ctx context.Context, n int64) error {
	t := r.t
	onePiece := n <= t.o.SegmentBytes // no extent is larger
	extra, least := 4*n, leastExtra   // against fragmentation
	for started := false; ; started = true {
		want := t.headroom.excess(n, started)
		scattered := want <= 0 // enough bytes, but perhaps in pieces
		switch {
		case scattered && (!onePiece || t.headroom.fits(n)):
			return nil
		case scattered && extra <= 0 && least <= 0:
			return tier.ErrNoSpace
		case scattered:
			want = 1 // one more victim may join two pieces
		}
		known := len(r.gone)
		freed, err := r.evict(ctx, want, extentOf, t.ledger.Evict)
		if err == nil && len(r.gone) == known {
			err = tier.ErrNoSpace
		}
		if err != nil {
			return err
		}
		if scattered {
			extra -= freed
			least -= len(r.gone) - known
		}
	}
}

// evict removes victims of at least want bytes, as gain counts them, one change
// full at most, and returns when their extents are free.
func (r *reclaim) evict(ctx context.Context, want int64, gain func(ledger.Entry) int64, victim func() (ledger.Entry, bool)) (freed int64, err error) {
	if r.t.scan.active.Load() && !r.restores {
		return 0, nil
	}
	err = r.remove(ctx, func(gone *removal) {
		for freed < want && len(gone.keys) < maxRemovals {
			e, ok := victim()
			if !ok {
				return
			}
			gone.take(e)
			freed += gain(e)
		}
	})
	return freed, err
}

// remove evicts what collect takes, and returns when the extents are free, or held by a reader.
func (r *reclaim) remove(ctx context.Context, collect func(*removal)) error {
	t := r.t
	if err := t.db.Works(); err != nil {
		return err
	}
	gone, err := t.remove(ctx, collect)
	r.gone = append(r.gone, gone.keys...)
	if err == nil && len(gone.keys) > 0 {
		err = t.tombs.flush(ctx)
	}
	return err
}

// shortLooks in a row that find a file system below its floor mean that
// others need the room. One may come between a table that the database
// has just written and the one that it is about to remove.
const shortLooks = 3

// files empties a segment of each file system that others have filled
// below its floor (headroom.floor), so that the segment's file can go. It evicts
// all entries there: extents of one age lie in all segments, and none is ever
// moved. From then on new segments leave the size of one more, so that the
// space given back is not taken again at once. It reads the whole database, so a
// call does nothing during another.
func (r *reclaim) files(ctx context.Context) error {
	t := r.t
	if t.scan.active.Load() || !t.emptying.CompareAndSwap(false, true) {
		return nil
	}
	defer t.emptying.Store(false)
	defer r.counts(&t.count.evictedFree)()
	for _, f := range t.volumes.fileSystems() {
		if f.short.Load() < shortLooks {
			continue
		}
		g := t.segments.leastUsed(f)
		if g == nil {
			continue
		}
		before := len(r.gone)
		f.slack.Store(t.o.SegmentBytes)
		err := r.empty(ctx, g, everything)
		t.log.Warn().Err(err).Str("path", g.volume.dir).Int64("bytes", g.blocks).Int("evicted", len(r.gone)-before).
			Int64("free", f.available.Load()).Int64("to_stay_free", t.headroom.floor(f)).
			Msg("others fill the file system beyond disk.min_free or what the database needs: a segment of the disk tier is given back")
		if err != nil {
			return err
		}
	}
	return nil
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
func (r *reclaim) empty(ctx context.Context, g *segment, goes func(*database.Entry) bool) error {
	there := func(e *database.Entry) bool { return !e.Inline && e.Extent.Segment == g.number && goes(e) }
	return r.t.walkKeys(ctx, there, func(ks []key.Key) error { return r.evictFrom(ctx, g, ks) })
}

// evictFrom evicts those of ks that still lie in g.
func (r *reclaim) evictFrom(ctx context.Context, g *segment, ks []key.Key) error {
	t := r.t
	for part := range slices.Chunk(ks, maxRemovals) {
		err := r.remove(ctx, func(gone *removal) {
			for _, k := range part {
				e, state := t.ledger.Find(k)
				if state == ledger.Resident && location(e.Value.A).segment() == g.number {
					t.takeOut(gone, []key.Key{k})
				}
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// maxReclaims is how often one Trim makes room for the database: compactions,
// segments and evictions together.
const maxReclaims = 8

// database makes room for n more bytes in the database, for the growth of its
// files and for the margin of deletions. Deleted and overwritten records go
// first; then a segment, the one with the least in it; a tier without segments
// evicts. The owner holds trimming.
func (r *reclaim) database(ctx context.Context, n int64) (err error) {
	t := r.t
	if t.scan.active.Load() {
		return nil
	}
	for range maxReclaims {
		short, alone := t.budget.short(n), r.shortAlone(n)
		if short = max(short, alone); short <= 0 || err != nil {
			break
		}
		g := (*segment)(nil)
		if alone <= 0 {
			g = t.segments.leastUsed(nil)
		}
		switch {
		case t.budget.garbage():
			err = r.compact(ctx)
		case g != nil:
			err = r.emptyLeast(ctx, g)
		default:
			err = r.evictHeld(ctx, short/filesWorth+t.budget.held.Load()/16)
		}
	}
	return err
}

// shortAlone is how many bytes are missing for n more of the database on a file
// system on which no segment can make way.
func (r *reclaim) shortAlone(n int64) int64 {
	t := r.t
	if slices.ContainsFunc(t.volumes, func(v *volume) bool { return v.fs.hasMeta }) {
		return 0
	}
	return t.budget.floor + t.budget.more() + filesWorth*n - t.budget.free.Load()
}

// databaseRoom is how much the database is to have room for so that a payload of n
// bytes can be stored. Without segments that is the room for the first one too.
func (r *reclaim) databaseRoom(n int64) int64 {
	t := r.t
	inline := n <= t.o.InlineMax
	room := metadata.HeldBytes(n, inline)
	if n > 0 && !inline && t.segments.usage().files == 0 {
		room += (max(extentBytes(n), t.o.SegmentBytes/16) + t.budget.bytes.Load()/4) / filesWorth
	}
	return room
}

// compact has the database drop deleted and overwritten records, and measures
// its size then. That may take long; ctx bounds the wait for it.
func (r *reclaim) compact(ctx context.Context) error {
	t := r.t
	done := make(chan error, 1)
	go func() { done <- t.db.Compact() }() // ends with the database, at the latest
	if err := t.until(ctx, done); err != nil {
		return fmt.Errorf("compact the database: %w", err)
	}
	if err := t.call(ctx, t.metaDev, func() error { return t.budget.Compacted(t.db.Measure) }, nil); err != nil {
		return err
	}
	return t.call(ctx, t.metaDev, t.lookAtMeta, nil)
}

// emptyLeast empties a segment that is closed to new extents, and removes its file
// once no extent of it is read any more.
func (r *reclaim) emptyLeast(ctx context.Context, g *segment) error {
	t, before := r.t, len(r.gone)
	defer r.counts(&t.count.evictedMeta)()
	err := r.empty(ctx, g, everything)
	t.log.Info().Err(err).Str("path", g.volume.dir).Int64("bytes", g.blocks).Int("evicted", len(r.gone)-before).
		Msg("the database of the disk tier needs more of disk.capacity: a segment makes way")
	if err == nil {
		err = t.call(ctx, g.volume.dev, func() error { return t.segments.removeDrained(g.volume) }, nil)
	}
	return err
}

// evictHeld evicts entries for which the database holds want bytes, as far as
// there are any.
func (r *reclaim) evictHeld(ctx context.Context, want int64) (err error) {
	t := r.t
	defer r.counts(&t.count.evictedMeta)()
	for freed := int64(1); freed > 0 && want > 0 && err == nil; want -= freed {
		freed, err = r.evict(ctx, want, heldFor, t.ledger.Evict)
	}
	return err
}

// extentOf is how many bytes of the segments an entry frees.
func extentOf(e ledger.Entry) int64 {
	if location(e.Value.A).inline() {
		return 0
	}
	return extentBytes(int64(e.Size))
}
