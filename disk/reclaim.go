package disk

import (
	"context"
	"fmt"
	"math"

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
//   - files: for others on a file system, a segment is emptied (reclaim_files.go)
//   - quotas: spaces that are over theirs
//   - entries: for the bound on their number (reclaim_entries.go)
//   - database: deleted records, then a segment, then entries (reclaim_database.go)
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
