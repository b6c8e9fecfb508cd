package stack

import (
	"context"
	"fmt"
	"slices"

	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// reject takes grants back for chunks that some tier has after all. Only the
// caller that fills a key can be sure of that: before, another client might have
// stored it, and DRAM evicted it, since the tiers were asked. It returns how many of
// the first grants are certain; an error says why there are fewer.
func (s *filler) reject(ctx context.Context, wait bool, c *key.Chain, from int, grants []Grant) (int, error) {
	if !slices.ContainsFunc(grants, isGranted) {
		return len(grants), nil
	}
	scanning := s.scanning() // before the index: what a scan brings is there before it ends
	s.hot.HandedOver()
	for i, g := range grants {
		if k := c.Key(from + i); isGranted(g) && (s.transit.has(k) || s.isBelow(k)) {
			s.exists(&grants[i])
			s.reveal(recordAt(c, from+i, 0))
		}
	}
	for _, l := range s.levels.below {
		if !scanning.Has(l.place) || l.Off() {
			continue
		}
		if n, err := s.rejectUnscanned(ctx, l, wait, c, from, grants); err != nil {
			for i := range grants[n:] {
				if isGranted(grants[n+i]) {
					s.exists(&grants[n+i])
				}
			}
			return n, err
		}
	}
	return len(grants), nil
}

func isGranted(g Grant) bool { return g.Status == Granted }

// exists takes one grant back.
func (s *filler) exists(g *Grant) {
	s.hot.Abort([]tier.Ref{g.Ref})
	*g = Grant{Status: Exists}
}

// reveal has the index follow tiers that were ahead of it.
func (s *filler) reveal(r tier.Record) {
	for _, l := range s.levels.below {
		if s.holds(l.place, r.Key) && !s.index.has(l.place, r.Key) {
			s.index.insert(l.place, []tier.Record{r})
		}
	}
}

// storedUnasked remembers a chunk that was stored while a tier could not be asked.
func (s *filler) storedUnasked(k key.Key, sum uint64) {
	for _, l := range s.levels.below {
		if l.scan.unknown.Load() {
			l.scan.untold.add(k, sum)
		}
	}
}

// rejectUnscanned asks a tier that is still being scanned for its chunks. What
// it does not say in time is not granted: the old bytes would come back once
// the new ones have left DRAM. A tier that fails has nothing; see untold.
func (s *filler) rejectUnscanned(ctx context.Context, of *level, wait bool, c *key.Chain, from int, grants []Grant) (int, error) {
	if !wait {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, askFor)
		defer cancel()
	}
	sc := borrow(0)
	defer sc.give()
	var have [askBatch]bool
	for n := 0; n < len(grants); n += askBatch {
		ks := sc.chain(c, from+n, from+min(n+askBatch, len(grants)))
		clear(have[:])
		err := of.tier.Contains(ctx, ks, have[:len(ks)])
		switch {
		case ctx.Err() != nil:
			return n, fmt.Errorf("reserve chunk %d: the %s tier is being scanned and does not say in time whether it has it; try again: %w: %w", from+n, of.place, tier.ErrNoSpace, context.Cause(ctx))
		case err != nil:
			s.log.Debug().Err(err).Stringer("tier", of.place).Msg("a tier that is being scanned does not say what it has")
			return len(grants), nil
		}
		for i := range ks {
			if g := &grants[n+i]; have[i] && isGranted(*g) {
				s.exists(g)
				s.index.add(c, from+n+i, from+n+i+1, of.place)
			}
		}
	}
	return len(grants), nil
}
