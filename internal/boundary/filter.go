package boundary

import (
	"encoding/binary"

	"github.com/kvstored/kvstored/key"
)

// filterFrom is how many pieces a space has before it gets a filter, whose 4 KiB are less
// than its table of pieces takes then.
const filterFrom = 256

// A filter is made anew after filterAdds pieces, as those that are gone stay in it, unless
// so many are there that it would say little.
const (
	filterAdds = 1 << 14
	filterMost = 1 << 13
)

// filter is a set of hashes that may have some more: most chunks that come and go are no
// pieces, and a look at one bit says so.
type filter [512]uint64

func bit(h *key.Hash) (word int, mask uint64) {
	n := (binary.LittleEndian.Uint64(h[:8]) ^ binary.LittleEndian.Uint64(h[8:])) * 0x9e3779b97f4a7c15 >> 49
	return int(n >> 6), 1 << (n & 63)
}

func (f *filter) add(h key.Hash) {
	word, mask := bit(&h)
	f[word] |= mask
}

func (f *filter) may(h *key.Hash) bool {
	word, mask := bit(h)
	return f[word]&mask != 0
}

// add makes a chunk a piece of the space.
func (s *space) add(h key.Hash, id uint32) {
	s.pieces[h] = id
	old := s.added >= filterAdds && len(s.pieces) <= filterMost
	if s.filter != nil && !old {
		s.filter.add(h)
		s.added++
		return
	}
	if len(s.pieces) <= filterFrom {
		return
	}
	s.filter, s.added = new(filter), len(s.pieces)
	for h := range s.pieces {
		s.filter.add(h)
	}
}

// find is the number of a piece; 0 if the chunk is none.
func (s *space) find(h *key.Hash) uint32 {
	if s.filter != nil && !s.filter.may(h) {
		return 0
	}
	return s.pieces[*h]
}
