package tier

import "github.com/kvstored/kvstored/key"

// Where is what the index says of one chunk.
func (s *Stack) Where(k key.Key) Set {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, _ := s.mu.tree.Get(k.Space, k.Hash)
	return Set(at)
}

// DropVictim is what the Stack does with what leaves DRAM.
func (s *Stack) DropVictim(v Victim) bool { return s.drop(v) }

// Scanned reports whether all that an earlier process left is known.
func (s *Stack) Scanned() bool { return s.scanned() == nil }
