package stack

import (
	"context"
	"fmt"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/radix"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// Holdings is how many of the known chunks each tier holds.
type Holdings struct {
	Chunks uint64                // in any tier
	In     map[tier.Place]uint64 // of those, in each tier there is
	// Missing is the chunks of this machine that the shared tier is not known to have.
	// Local is the chunks that it never gets: see KeepLocal.
	Missing Volume
	Local   uint64
}

// Holdings counts the index. It is an error while that does not know all that an
// earlier process left on this machine.
func (s *flusher) Holdings(ctx context.Context) (Holdings, error) {
	h := Holdings{In: make(map[tier.Place]uint64, len(s.levels.all))}
	if err := s.ownScanned(); err != nil {
		return h, fmt.Errorf("holdings: %w", err)
	}
	for _, l := range s.levels.all {
		h.In[l.place] = 0
	}
	shared := s.sharedTier()
	for next, more := uint64(0), true; more && ctx.Err() == nil; more = next != 0 {
		var missing []key.Key
		next = s.index.sweep(next, func(e *radix.Entry) {
			at := tier.Set(e.Loc)
			h.Chunks++
			for _, l := range s.levels.all {
				if at.Has(l.place) {
					h.In[l.place]++
				}
			}
			switch {
			case !lacks(shared, at):
			case s.local.has(e.Space):
				h.Local++
			default:
				missing = append(missing, key.Key{Space: e.Space, Hash: e.Hash})
			}
		})
		for _, k := range missing {
			h.Missing = h.Missing.Plus(Volume{1, uint64(s.sizeOf(k))})
		}
	}
	return h, ctx.Err()
}

// sharedTier is the tier that others use too; nil if there is none.
func (d *dram) sharedTier() *level {
	for _, l := range d.levels.below {
		if l.shared() {
			return l
		}
	}
	return nil
}

// lacks reports whether a chunk that is in some tiers is not in the shared one.
func lacks(shared *level, at tier.Set) bool { return shared != nil && !at.Has(shared.place) }

// ownScanned is an error while what an earlier process left in the tiers of this machine
// is not all known.
func (d *dram) ownScanned() error {
	own := tier.Set(0)
	for _, l := range d.levels.all {
		if !l.shared() {
			own |= tier.Of(l.place)
		}
	}
	return d.scanned(own)
}

// sizeOf is how large a chunk is; 0 where no tier of this machine can say at once.
func (d *dram) sizeOf(k key.Key) uint32 {
	if e, st := d.hot.Ledger().Find(k); st == ledger.Resident {
		return e.Size
	}
	for _, l := range d.levels.below {
		if l.Summed != nil {
			if _, size, known := l.Summed.Sum(k); known {
				return size
			}
		}
	}
	return 0
}
