package store

import (
	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// SettleBatch is how many keys a deletion looks up at a time.
const SettleBatch = indexBatch

// Where is what the index says of one chunk.
func (s *Store) Where(k key.Key) tier.Set {
	return s.index.Where(k)
}

// Settle has the index ask a tier.
func (s *Store) Settle(p tier.Place, k key.Key) { s.index.Sync(p, explain.Evicted, k) }

// DropVictim is what the Store does with what leaves DRAM.
func (s *Store) DropVictim(v tier.Victim) bool { return s.Writers.Demote(v) }

// Scanned reports whether all that an earlier process left is known.
func (s *Store) Scanned() bool { return s.levels.scanned(tier.All) == nil }

// HoldUp calls do while nothing can come up to DRAM, or back.
func (s *Store) HoldUp(do func()) {
	s.promotions.mu.Lock()
	defer s.promotions.mu.Unlock()
	do()
}

// Recall is what a deletion does about keys on their way down.
func (s *Store) Recall(ks []key.Key) {
	for _, l := range s.levels.below {
		l.writer.Recall(deletionOf(tier.All, ks))
	}
}

// GroupBits counts them.
func (s *Store) GroupBits() int {
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	return len(s.index.mu.bits.of)
}

// Marked reports whether the chunks of full have a mark for those of space.
func (s *Store) Marked(full, space key.SpaceID) bool { return s.index.mark(full, space) != 0 }
