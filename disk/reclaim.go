package disk

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

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
// It keeps nothing between two calls.
type reclaim struct {
	t        *instance
	restores bool // on behalf of recovery, which is the only one to evict before it has ended
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
	if err != nil {
		err = t.failed(fmt.Errorf("trim for %d bytes: %w", n, err))
	}
	return out, err
}

func (t *instance) trim(ctx context.Context, n int64, out []key.Key) ([]key.Key, error) {
	err := t.usable(ctx)
	if err == nil {
		err = t.db.Works()
	}
	if n == 0 && err == nil {
		out, err = reclaim{t: t}.files(ctx, out)
	}
	if err == nil {
		out, err = reclaim{t: t}.trim(ctx, n, out)
	}
	return out, err
}

func (v reclaim) trim(ctx context.Context, n int64, out []key.Key) (gone []key.Key, err error) {
	t := v.t
	select {
	case t.trimming <- struct{}{}:
		defer func() { <-t.trimming }()
	case <-ctx.Done():
		return out, ctx.Err()
	}
	before := len(out)
	defer func() {
		count := &t.count.evictedRoom
		if n == 0 {
			count = &t.count.evictedAhead
		}
		count.Add(uint64(len(gone) - before))
	}()
	if n > 0 && extentBytes(n) > t.o.CapacityBytes-t.o.MetaReserveBytes {
		return out, tier.ErrTooLarge
	}
	if out, err = v.quotas(ctx, out); err != nil {
		return out, err
	}
	if out, err = v.entries(ctx, n, out); err != nil {
		return out, err
	}
	if out, err = v.database(ctx, v.databaseRoom(n), out); err != nil {
		return out, err
	}
	if n <= t.o.InlineMax {
		n = 0
	} else {
		n = extentBytes(n)
	}
	return v.extents(ctx, n, out)
}

// quotas evicts entries until no quota is exceeded, or none can be evicted.
func (v reclaim) quotas(ctx context.Context, out []key.Key) ([]key.Key, error) {
	t := v.t
	for freed := int64(1); freed > 0 && t.ledger.OverQuota(); {
		var err error
		if out, freed, err = v.evict(ctx, math.MaxInt64, out, heldFor, t.ledger.EvictOver); err != nil {
			return out, err
		}
	}
	return out, nil
}

// extents evicts until an extent of n bytes fits under a watermark and, if one can
// be that large, in one piece.
func (v reclaim) extents(ctx context.Context, n int64, out []key.Key) ([]key.Key, error) {
	t := v.t
	onePiece := n <= t.o.SegmentBytes // no extent is larger
	extra, least := 4*n, leastExtra   // against fragmentation
	for started := false; ; started = true {
		want := t.space.excess(n, started)
		scattered := want <= 0 // enough bytes, but perhaps in pieces
		switch {
		case scattered && (!onePiece || t.space.fits(n)):
			return out, nil
		case scattered && extra <= 0 && least <= 0:
			return out, tier.ErrNoSpace
		case scattered:
			want = 1 // one more victim may join two pieces
		}
		var freed int64
		var err error
		known := len(out)
		out, freed, err = v.evict(ctx, want, out, extentOf, t.ledger.Evict)
		if err == nil && len(out) == known {
			err = tier.ErrNoSpace
		}
		if err != nil {
			return out, err
		}
		if scattered {
			extra -= freed
			least -= len(out) - known
		}
	}
}

// evict removes victims of at least want bytes, as gain counts them, one change
// full at most, and returns when their extents are free.
func (v reclaim) evict(ctx context.Context, want int64, out []key.Key, gain func(ledger.Entry) int64, victim func() (ledger.Entry, bool)) ([]key.Key, int64, error) {
	t := v.t
	if t.scan.active.Load() && !v.restores {
		return out, 0, nil
	}
	if err := t.db.Works(); err != nil {
		return out, 0, err
	}
	var freed int64
	r, err := t.remove(ctx, func(r *removal) {
		for freed < want && len(r.keys) < maxRemovals {
			e, ok := victim()
			if !ok {
				return
			}
			r.take(e)
			freed += gain(e)
		}
	})
	if err == nil && len(r.keys) > 0 {
		err = t.tombs.flush(ctx)
	}
	return append(out, r.keys...), freed, err
}

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

// excessEntries is excess in entries: how many must be evicted before n more are under the
// mark.
func (s *space) excessEntries(n int, started bool) int {
	if s.o.Entries == 0 {
		return -math.MaxInt
	}
	return s.o.Entries - ledger.Spare(s.ledger) + n - max(int(s.mark(int64(s.o.Entries), started)), n)
}

// entries evicts until there are few enough entries, one for a payload of n bytes
// included, as extents does for bytes.
func (v reclaim) entries(ctx context.Context, n int64, out []key.Key) ([]key.Key, error) {
	t := v.t
	room := 0
	if n > 0 {
		room = 2 // it may need a hole for its parent
	}
	for started := false; ; started = true {
		want := t.space.excessEntries(room, started)
		if want <= 0 {
			return out, nil
		}
		known := len(out)
		var err error
		out, _, err = v.evict(ctx, int64(want), out, one, t.ledger.Evict)
		t.count.evictedEntries.Add(uint64(len(out) - known))
		switch {
		case err != nil:
			return out, err
		case len(out) == known && ledger.Spare(t.ledger) < room:
			return out, tier.ErrNoSpace
		case len(out) == known:
			return out, nil
		}
	}
}

// one counts entries.
func one(ledger.Entry) int64 { return 1 }

// cut deletes the records of the entries used longest ago beyond Options.Entries, so
// that recovery takes no more memory for more records. Their headers are left to the
// survey.
func (r *recovery) cut(ctx context.Context, entries []database.Entry) ([]database.Entry, error) {
	most := r.t.o.Entries
	slices.SortFunc(entries, func(a, b database.Entry) int { return byUse(&b, &a) })
	var ks []key.Key
	for i := range entries[most:] {
		e := &entries[most+i]
		ks = append(ks, e.Key)
		r.buried = r.buried || !e.Inline
	}
	r.beyond += len(ks)
	return entries[:most], r.dropRecords(ctx, ks)
}

// byUse compares by last use, oldest first. Of those used in the same second the tail
// of a chain is older than its head.
func byUse(a, b *database.Entry) int {
	return cmp.Or(cmp.Compare(a.Used, b.Used), cmp.Compare(b.Depth, a.Depth), cmp.Compare(a.Seq, b.Seq))
}

// skip returns the indices of those of n entries, the least recently used first, that
// would be too many.
func (r *recovery) skip(n int) (first []int) {
	many := min(max(0, n+r.t.space.excessEntries(0, false)), n)
	for i := range many {
		first = append(first, i)
	}
	r.beyond += many
	return first
}

// makeRoom evicts where puts under way have filled the ledger, or holes have. If it
// cannot, the ledger refuses the entry that comes next.
func (r *recovery) makeRoom(ctx context.Context) {
	t := r.t
	if ledger.Spare(t.ledger) >= 2 { // the entry, and a hole for its parent
		return
	}
	gone, err := (reclaim{t, true}).entries(ctx, 1, nil)
	if r.beyond += len(gone); err != nil {
		t.trouble.Warn().Err(err).Msg("entries beyond the most that there may be cannot be evicted")
	}
}

// maxReclaims is how often one Trim makes room for the database: compactions,
// segments and evictions together.
const maxReclaims = 8

// database makes room for n more bytes in the database, for the growth of its
// files and for the margin of deletions. Deleted and overwritten records go
// first; then a segment, the one with the least in it; a tier without segments
// evicts. The owner holds trimming. It appends the evicted keys to out.
func (v reclaim) database(ctx context.Context, n int64, out []key.Key) ([]key.Key, error) {
	t := v.t
	if t.scan.active.Load() {
		return out, nil
	}
	for range maxReclaims {
		short, alone := t.share.short(n), v.shortAlone(n)
		if short = max(short, alone); short <= 0 {
			return out, nil
		}
		var err error
		g := (*segment)(nil)
		if alone <= 0 {
			g = t.segments.leastUsed(nil)
		}
		switch {
		case t.share.garbage():
			err = v.compact(ctx)
		case g != nil:
			out, err = v.emptyLeast(ctx, g, out)
		default:
			out, err = v.evictHeld(ctx, short/filesWorth+t.share.held.Load()/16, out)
		}
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// shortAlone is how many bytes are missing for n more of the database on a file
// system on which no segment can make way.
func (v reclaim) shortAlone(n int64) int64 {
	t := v.t
	if slices.ContainsFunc(t.volumes, func(v *volume) bool { return v.fs.hasMeta }) {
		return 0
	}
	return t.share.floor + t.share.more() + filesWorth*n - t.share.free.Load()
}

// databaseRoom is how much the database is to have room for so that a payload of n
// bytes can be stored. Without segments that is the room for the first one too.
func (v reclaim) databaseRoom(n int64) int64 {
	t := v.t
	inline := n <= t.o.InlineMax
	room := metadata.HeldBytes(n, inline)
	if files, _, _, _ := t.segments.usage(); n > 0 && !inline && files == 0 {
		room += (max(extentBytes(n), t.o.SegmentBytes/16) + t.share.bytes.Load()/4) / filesWorth
	}
	return room
}

// compact has the database drop deleted and overwritten records, and measures
// its size then. That may take long; ctx bounds the wait for it.
func (v reclaim) compact(ctx context.Context) error {
	t := v.t
	done := make(chan error, 1)
	go func() { done <- t.db.Compact() }() // ends with the database, at the latest
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		err = ctx.Err()
	case <-t.ended:
		err = context.Canceled
	}
	if err != nil {
		return fmt.Errorf("compact the database: %w", err)
	}
	t.count.compactions.Add(1)
	if err := t.call(ctx, t.metaDev, func() error { return t.share.Compacted(t.db.Measure) }, nil); err != nil {
		return err
	}
	return t.call(ctx, t.metaDev, (maintenance{t}).lookAtMeta, nil)
}

// emptyLeast empties a segment that is closed to new extents, and removes its file
// once no extent of it is read any more.
func (v reclaim) emptyLeast(ctx context.Context, g *segment, out []key.Key) ([]key.Key, error) {
	t := v.t
	before := len(out)
	out, err := v.empty(ctx, g, everything, out)
	t.count.evictedMeta.Add(uint64(len(out) - before))
	t.log.Info().Err(err).Str("path", g.volume.dir).Int64("bytes", g.blocks).Int("evicted", len(out)-before).
		Msg("the database of the disk tier needs more of disk.capacity: a segment makes way")
	if err == nil {
		err = t.call(ctx, g.volume.dev, func() error { return t.segments.removeLeft(g.volume) }, nil)
	}
	return out, err
}

// evictHeld evicts entries for which the database holds want bytes, as far as
// there are any.
func (v reclaim) evictHeld(ctx context.Context, want int64, out []key.Key) ([]key.Key, error) {
	t := v.t
	for want > 0 {
		before := len(out)
		var freed int64
		var err error
		out, freed, err = v.evict(ctx, want, out, heldFor, t.ledger.Evict)
		t.count.evictedMeta.Add(uint64(len(out) - before))
		if err != nil || len(out) == before {
			return out, err
		}
		want -= freed
	}
	return out, nil
}

// extentOf is how many bytes of the segments an entry frees.
func extentOf(e ledger.Entry) int64 {
	if loc := location(e.Value.A); !loc.inline() {
		return extentBytes(int64(e.Size))
	}
	return 0
}
