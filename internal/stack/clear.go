package stack

import (
	"cmp"
	"context"
	"fmt"

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
			return 0, fmt.Errorf("clear: %w", missing("there is no "+p.String()+" tier"))
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
	if !from.Has(tier.CPU) {
		defer s.cleared.Add(1) // last: see flusher.Cleared
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

// Cleared is the chunks that are in DRAM only since Clear took them out of the
// tiers below: they are not written again. It costs nothing unless there may be
// some; then it holds the index as Known does.
func (s *flusher) Cleared() (v Volume) {
	times := s.cleared.Load()
	if times == 0 {
		return v
	}
	for _, id := range s.index.spaces() {
		for _, k := range s.index.keys(id, tier.Of(tier.CPU)) {
			e, st := s.hot.Ledger().Find(k)
			if st == ledger.Resident && !e.Dirty && s.index.where(k) == tier.Of(tier.CPU) {
				v = v.Plus(Volume{1, uint64(e.Size)})
			}
		}
	}
	if v.Chunks == 0 {
		s.cleared.CompareAndSwap(times, 0) // else another Clear has ended meanwhile
	}
	return v
}

// clear is Clear for one space.
func (s *remover) clear(ctx context.Context, from tier.Set, id key.SpaceID) (int, error) {
	d := &deletion{from: from, space: id}
	defer s.promotions.refuse(d)()
	n := len(d.list(s.index))
	return n, s.delete(ctx, d)
}
