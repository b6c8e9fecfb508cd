package stack

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// Clear forgets everything that some tiers have when it is called, and
// returns how many chunks that was. No tier means those of this machine: a
// remote one is shared with others, and must be named. A chunk cleared below
// stays in DRAM if it is there, and is not written again.
func (s *remover) Clear(ctx context.Context, from tier.Set) (int, error) {
	own := tier.Set(0)
	for p := tier.CPU; p < tier.Places; p++ {
		if from.Has(p) && s.levels.at[p] == nil {
			return 0, fmt.Errorf("clear: %w", notThere("there is no "+p.String()+" tier"))
		}
	}
	for _, l := range s.levels.all {
		if from == 0 && !l.shared() {
			own |= tier.Of(l.place)
		}
	}
	from = cmp.Or(from, own)
	if err := s.scanned(from); err != nil {
		return 0, fmt.Errorf("clear: %w", err)
	}
	if from != tier.All {
		defer s.cleared.add(from) // last: see flusher.Cleared
	}
	n := 0
	for _, id := range s.index.spaces() { // one at a time: the index is locked for one space
		more, err := s.clear(ctx, from, id)
		if err != nil {
			return n, fmt.Errorf("clear: %w", err)
		}
		n += more
	}
	s.log.Info().Int("chunks", n).Msg("cleared")
	return n, nil
}

// cleared is the tiers below that were cleared while others kept their chunks,
// until none of those is left. Its mutex is a leaf.
type cleared struct {
	mu struct {
		sync.Mutex
		from  tier.Set
		times uint64
	}
}

func (c *cleared) add(from tier.Set) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.from |= from &^ tier.Of(tier.CPU)
	c.mu.times++
}

func (c *cleared) read() (from tier.Set, times uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.from, c.mu.times
}

// reset ends it, unless another Clear has ended since times was read.
func (c *cleared) reset(times uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.times == times {
		c.mu.from = 0
	}
}

// Cleared is the chunks that a tier does not have since Clear took them out of
// it, and that are not written to it again: those that are in DRAM only, and those
// that a tier without bounds, which evicts nothing, is not known to have. It costs
// nothing unless there may be some; then it holds the index as Known does.
func (s *flusher) Cleared() (v Volume) {
	from, times := s.cleared.read()
	if from == 0 {
		return v
	}
	kept := tier.Set(0) // of those, the tiers that keep what they are given
	for _, l := range s.levels.below {
		if from.Has(l.place) && l.Resident == nil {
			kept |= tier.Of(l.place)
		}
	}
	for _, id := range s.index.spaces() {
		in, kept := tier.Of(tier.CPU), kept&s.reach(id)
		if kept != 0 {
			in = tier.All
		}
		for _, k := range s.index.keys(id, in) {
			if n, is := s.isCleared(k, kept); is {
				v = v.Plus(Volume{1, uint64(n)})
			}
		}
	}
	if v.Chunks == 0 {
		s.cleared.reset(times)
	}
	return v
}

// isCleared reports whether k is in DRAM only, though it was written, or not in
// one of the tiers kept, and how large it is.
func (s *flusher) isCleared(k key.Key, kept tier.Set) (size uint32, is bool) {
	at := s.index.where(k)
	e, st := s.hot.Ledger().Find(k)
	switch {
	case at == 0 || st == ledger.Resident && e.Dirty:
		return 0, false
	case st == ledger.Resident:
		return e.Size, at == tier.Of(tier.CPU) || kept&^at != 0
	case kept&^at == 0:
		return 0, false
	}
	return s.sizeOf(k), true
}

// clear is Clear for one space.
func (s *remover) clear(ctx context.Context, from tier.Set, id key.SpaceID) (int, error) {
	d := &deletion{from: from, whole: true, space: id}
	defer s.promotions.refuse(d)()
	n := len(d.list(s.index))
	return n, s.delete(ctx, d)
}
