package tier

import (
	"context"

	"github.com/kvstored/kvstored/key"
)

// SettleBatch is how many keys a deletion looks up at a time.
const SettleBatch = settleBatch

// Where is what the index says of one chunk.
func (s *Stack) Where(k key.Key) Set {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, _ := s.mu.tree.Get(k.Space, k.Hash)
	return Set(at)
}

// Settle has the index ask a tier.
func (s *Stack) Settle(p Place, k key.Key) { s.settle(p, k) }

// DropVictim is what the Stack does with what leaves DRAM.
func (s *Stack) DropVictim(v Victim) bool { return s.drop(v) }

// Scanned reports whether all that an earlier process left is known.
func (s *Stack) Scanned() bool { return s.scanned() == nil }

// HoldUp calls do while nothing can come up to DRAM, or back.
func (s *Stack) HoldUp(do func()) {
	s.coming.mu.Lock()
	defer s.coming.mu.Unlock()
	do()
}

// Recall is what a deletion does about keys on their way down.
func (s *Stack) Recall(ks []key.Key) {
	for _, w := range s.writers {
		s.departing.recall(deletionOf(context.Background(), All, ks), w)
	}
}
