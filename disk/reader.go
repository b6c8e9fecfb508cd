package disk

import "github.com/kvstored/kvstored/internal/base"

// acquire counts a reader of e, whose location find names. Under one lock with
// the look-up that found it, so that no free comes between.
func (s *segments) acquire(find func() (location, bool)) (location, *segment, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	loc, ok := find()
	if !ok || loc.inline() {
		return loc, nil, ok
	}
	g := s.find(loc.segment())
	if g == nil {
		return loc, nil, false
	}
	s.mu.readers[uint64(loc)]++
	return loc, g, true
}

// retain counts the same reader once more.
func (s *segments) retain(loc location) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.readers[uint64(loc)]++
}

// release ends one reader.
func (s *segments) release(loc location) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.readers[uint64(loc)]--; s.mu.readers[uint64(loc)] > 0 {
		return
	}
	delete(s.mu.readers, uint64(loc))
	if n, ok := s.mu.freeing[uint64(loc)]; ok {
		delete(s.mu.freeing, uint64(loc))
		if g := s.find(loc.segment()); g != nil && g.free != nil {
			g.free.Free(loc.offset(), extentBytes(n))
		}
	}
}

// free makes the extent of a payload of n bytes reusable, once no reader has
// it and its header says so (see tombWriter.flush). The deletion is in Badger, or no record was.
func (s *segments) free(loc location, n int64) {
	if loc.inline() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.tombs = append(s.mu.tombs, s.tombstone(loc, n))
	s.unwritten.Add(1)
	s.mu.readers[uint64(loc)]++ // until it is written
	s.mu.freeing[uint64(loc)] = n
	base.Poke(s.freed)
}
