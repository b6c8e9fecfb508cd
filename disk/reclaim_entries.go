package disk

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

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
