package index

import (
	"encoding/binary"
	"testing"

	"github.com/kvstored/kvstored/key"
)

// A filter has all pieces of its space, however many came and went, and few other chunks.
func TestFilterHasAllPieces(t *testing.T) {
	s := &resumeSpace{pieces: make(map[key.Hash]uint32)}
	name := func(n int) (h key.Hash) {
		binary.LittleEndian.PutUint64(h[:], uint64(n)) // as of an engine that counts
		return h
	}
	const kept = 1500
	for n := range 50_000 {
		if s.add(name(n), uint32(n+1)); n >= kept {
			delete(s.pieces, name(n-kept))
		}
		if n%1000 != 0 {
			continue
		}
		for i := max(0, n-kept+1); i <= n; i++ {
			if h := name(i); s.find(&h) != uint32(i+1) {
				t.Fatalf("after %d: piece %d is not found", n, i)
			}
		}
	}
	may := 0
	for n := range 10_000 {
		h := name(1<<40 + n)
		if s.find(&h) != 0 {
			t.Fatalf("chunk %d is a piece", n)
		}
		if s.filter.may(&h) {
			may++
		}
	}
	if may > 5_000 {
		t.Errorf("%d of 10,000 other chunks may be pieces", may)
	}
}
