package tier

import "github.com/kvstored/kvstored/key"

// Spaces returns how many chunks of each space some tier is known to have;
// spaces with none are left out. It counts a few hundred spaces at a time, so
// that nobody waits long for the index, whatever is in them; one that comes or
// goes meanwhile may be missing.
func (s *Stack) Spaces() map[key.SpaceID]int {
	chunks := make(map[key.SpaceID]int)
	for next := s.census(0, chunks); next != 0; {
		next = s.census(next, chunks)
	}
	return chunks
}

// census is one step of Spaces; it returns where the next one begins, or 0.
func (s *Stack) census(from int, chunks map[key.SpaceID]int) (next int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.tree.Census(from, settleBatch, func(id key.Hash, n int) {
		if n > 0 {
			chunks[id] = n
		}
	})
}

// Spaced is a bounded tier that knows what each space occupies.
type Spaced interface {
	SpaceBytes(id key.SpaceID) int64
}

// HotBytes is how much of DRAM the chunks of a space occupy.
func (s *Stack) HotBytes(id key.SpaceID) int64 { return s.hot.Ledger().SpaceBytes(id) }

// DiskBytes is how much of the disk tier they occupy.
func (s *Stack) DiskBytes(id key.SpaceID) int64 {
	if d, ok := under[Spaced](s.tiers[Disk]); ok {
		return d.SpaceBytes(id)
	}
	return 0
}
