package disk

import (
	"context"
	"fmt"
	"slices"

	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
)

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
