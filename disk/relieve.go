package disk

import (
	"context"
	"fmt"
	"slices"

	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
)

// maxReliefs is how often one Trim makes room for the database: compactions,
// segments and evictions together.
const maxReliefs = 8

// relieve makes room for n more bytes in the database, and for what it may come
// to besides. What is deleted or overwritten goes first; then a segment, the one
// with the least in it; a tier without segments evicts. The owner holds
// trimming. It appends the evicted keys to out.
func (t *Tier) relieve(ctx context.Context, n int64, out []key.Key) ([]key.Key, error) {
	if t.scan.active.Load() {
		return out, nil
	}
	for range maxReliefs {
		short, alone := t.share.short(n), t.shortAlone(n)
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
			err = t.compact(ctx)
		case g != nil:
			out, err = t.makeWay(ctx, g, out)
		default:
			out, err = t.evictHeld(ctx, short/filesWorth+t.share.held.Load()/16, out)
		}
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// shortAlone is how many bytes are missing for n more of the database on a file
// system on which no segment can make way.
func (t *Tier) shortAlone(n int64) int64 {
	if slices.ContainsFunc(t.volumes, func(v *volume) bool { return v.fs.hasMeta }) {
		return 0
	}
	return t.db.floor + t.share.more() + filesWorth*n - t.share.free.Load()
}

// heldRoom is how much the database is to have room for so that a payload of n
// bytes can be stored. Without segments that is the room for the first one too.
func (t *Tier) heldRoom(n int64) int64 {
	inline := n <= t.o.InlineMax
	room := held(n, inline)
	if files, _, _, _ := t.segments.usage(); n > 0 && !inline && files == 0 {
		room += (max(extentBytes(n), t.o.SegmentBytes/16) + t.share.bytes.Load()/4) / filesWorth
	}
	return room
}

// compact has the database drop what is deleted or overwritten, and looks what
// it holds then. It may take its time, and is bounded by ctx.
func (t *Tier) compact(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- t.db.ask((*database.DB).Compact) }() // ends with the database, at the latest
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
	if err := t.call(ctx, t.metaDev, func() error { return t.share.compacted(t.db.measure) }, nil); err != nil {
		return err
	}
	return t.call(ctx, t.metaDev, t.lookAtMeta, nil)
}

// makeWay empties a segment that is closed to new extents, and removes its file
// once no extent of it is read any more.
func (t *Tier) makeWay(ctx context.Context, g *segment, out []key.Key) ([]key.Key, error) {
	before := len(out)
	out, err := t.empty(ctx, g, out)
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
func (t *Tier) evictHeld(ctx context.Context, want int64, out []key.Key) ([]key.Key, error) {
	for want > 0 {
		before := len(out)
		var freed int64
		var err error
		out, freed, err = t.evict(ctx, want, out, heldFor, t.ledger.Evict)
		t.count.evictedMeta.Add(uint64(len(out) - before))
		if err != nil || len(out) == before {
			return out, err
		}
		want -= freed
	}
	return out, nil
}

// extentOf is what an entry frees of the segments.
func extentOf(e ledger.Entry) int64 {
	if loc := location(e.Value.A); !loc.inline() {
		return loc.extent(int64(e.Size))
	}
	return 0
}
