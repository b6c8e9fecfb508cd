package stack

import (
	"context"

	"github.com/kvstored/kvstored/internal/events"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// Spaces returns how many chunks of each space some tier is known to have;
// spaces with none are left out. It counts a few hundred spaces at a time, so
// that no request waits long for the index, however many chunks are in them; one that comes or
// goes meanwhile may be missing.
func (s *operator) Spaces() map[key.SpaceID]int {
	chunks := make(map[key.SpaceID]int)
	for next := s.index.census(0, chunks); next != 0; {
		next = s.index.census(next, chunks)
	}
	return chunks
}

// HotBytes is how much of DRAM the chunks of a space occupy.
func (s *operator) HotBytes(id key.SpaceID) int64 { return s.hot.Ledger().SpaceBytes(id) }

// DiskBytes is how much of the disk tier they occupy.
func (s *operator) DiskBytes(id key.SpaceID) int64 {
	if l := s.levels.at[tier.Disk]; l != nil && l.Bounded != nil {
		return l.Bounded.Ledger().SpaceBytes(id)
	}
	return 0
}

// Announce notes in the log all that the tiers are known to have, in order with
// other changes. It lets requests in between.
func (s *operator) Announce(ctx context.Context) error {
	return s.index.tour(ctx, func(ks []key.Key) error {
		s.index.announce(ks)
		return s.index.journal.log.Room(ctx)
	})
}

// Contents calls visit with all that the tiers are known to have, a few hundred
// chunks at a time and a chunk before those that follow it. What changes meanwhile
// may be in it or not: the log has it. The slice is valid until visit returns.
func (s *operator) Contents(ctx context.Context, visit func([]events.Change) error) error {
	var list []events.Change
	return s.index.tour(ctx, func(ks []key.Key) error {
		list = s.index.contents(list[:0], ks)
		return visit(list)
	})
}
