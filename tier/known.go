package tier

import (
	"context"
	"fmt"
	"slices"

	"github.com/kvstored/kvstored/key"
)

// locateEach asks for chunks from..to of c by their keys, whatever is known
// of the way to them: a chunk whose ancestors were deleted or lost is no prefix
// hit, but its key is taken all the same. One that is known below another chunk
// than in c is ErrInconsistent.
func (s *Stack) locateEach(c *key.Chain, from, to int, at []uint8) error {
	return s.eachAlone(from, to, func(i int) error {
		at[i], _ = s.mu.tree.Get(c.Space, c.Hashes[i])
		if up, ok := s.mu.tree.Parent(c.Space, c.Hashes[i]); ok && at[i] != 0 && up != c.Parent(i) {
			s.count.inconsistent.Add(1)
			return fmt.Errorf("reserve chunk %d: %w: it is known below another chunk", i, ErrInconsistent)
		}
		return nil
	})
}

// isBelow reports whether a tier below DRAM has k. A bounded one is asked
// itself, for the index may be behind it.
func (s *Stack) isBelow(k key.Key) bool {
	s.mu.Lock()
	at, _ := s.mu.tree.Get(k.Space, k.Hash)
	s.mu.Unlock()
	if Set(at)&^Of(CPU) != 0 {
		return true
	}
	for p := Disk; p < Places; p++ {
		if s.holds(p, k) {
			return true
		}
	}
	return false
}

// reject takes grants back for chunks that some tier has after all. Only the
// caller that fills a key can be sure of that: before, another client might have
// stored it, and DRAM evicted it, since the tiers were asked. It returns how many of
// the first grants are certain; an error says why there are fewer.
func (s *Stack) reject(ctx context.Context, wait bool, c *key.Chain, from int, grants []Grant) (int, error) {
	if !slices.ContainsFunc(grants, isGranted) {
		return len(grants), nil
	}
	scanning := s.recovering.Load() // before the index: what the scan brings is there before it ends
	s.hot.HandedOver()
	for i, g := range grants {
		if k := c.Key(from + i); isGranted(g) && (s.departing.has(k) || s.isBelow(k)) {
			s.exists(&grants[i])
			s.reveal(recordAt(c, from+i, 0))
		}
	}
	if !scanning || isOff(s.tiers[Disk]) {
		return len(grants), nil
	}
	n, err := s.rejectUnscanned(ctx, wait, c, from, grants)
	for i := range grants[n:] {
		if isGranted(grants[n+i]) {
			s.exists(&grants[n+i])
		}
	}
	return n, err
}

func isGranted(g Grant) bool { return g.Status == Granted }

// exists takes one grant back.
func (s *Stack) exists(g *Grant) {
	s.hot.Abort([]Ref{g.Ref})
	*g = Grant{Status: Exists}
}

// reveal has the index follow a disk that was ahead of it.
func (s *Stack) reveal(r Record) {
	if s.holds(Disk, r.Key) && !s.indexed(Disk, r.Key) {
		s.settleRecords(Disk, []Record{r})
	}
}

// rejectUnscanned asks a disk that is still being scanned for what it has. What
// it does not say in time is not granted: the old bytes would come back once
// the new ones have left DRAM. A disk that fails has nothing; see untold.
func (s *Stack) rejectUnscanned(ctx context.Context, wait bool, c *key.Chain, from int, grants []Grant) (int, error) {
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
		err := s.tiers[Disk].Contains(ctx, ks, have[:len(ks)])
		switch {
		case ctx.Err() != nil:
			return n, fmt.Errorf("reserve chunk %d: the disk tier is being scanned and does not say in time whether it has it; try again: %w", from+n, ErrNoSpace)
		case err != nil:
			s.log.Debug().Err(err).Msg("the disk tier does not say what it has")
			return len(grants), nil
		}
		for i := range ks {
			if g := &grants[n+i]; have[i] && isGranted(*g) {
				s.exists(g)
				_ = s.learn(c, from+n+i, from+n+i+1, Disk) // otherwise the scan will tell
			}
		}
	}
	return len(grants), nil
}
