package retain

import (
	"cmp"
	"encoding/hex"
	"maps"
	"slices"
	"time"

	"github.com/kvstored/kvstored/key"
)

// Held is what one claimant retains.
type Held struct {
	Claimant
	Chunks   int
	Bytes    int64
	Priority uint8 // the highest
	Left     time.Duration
}

// List is what claimants retain, most bytes first: the first most of them. more is how
// many are left out. It takes the lock for a round of chunks at a time, so that what
// changes meanwhile may be in it or not.
func (t *Table) List(most int) (list []Held, more int) {
	now := t.now()
	for _, h := range t.holders() {
		x := Held{Claimant: h.Claimant}
		for some := range slices.Chunk(t.hashes(h), round) {
			t.sum(&x, h, some, now)
		}
		if x.Chunks > 0 {
			list = append(list, x)
		}
	}
	slices.SortFunc(list, func(a, b Held) int {
		return cmp.Or(
			cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.UID, b.UID), cmp.Compare(a.Name, b.Name),
			cmp.Compare(hex.EncodeToString(a.Space[:]), hex.EncodeToString(b.Space[:])),
		)
	})
	more = max(0, len(list)-most)
	return list[:len(list)-more], more
}

func (t *Table) holders() []*holder {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.mu.holders))
}

func (t *Table) hashes(h *holder) []key.Hash {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(h.chunks))
}

// sum adds the chunks that a claimant still retains.
func (t *Table) sum(x *Held, h *holder, some []key.Hash, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, hash := range some {
		ch := t.mu.chunks[key.Key{Space: h.Space, Hash: hash}]
		g := ch.of(h)
		if g == nil {
			continue // since let go of
		}
		x.Chunks++
		x.Bytes += ch.bytes
		x.Priority, x.Left = max(x.Priority, g.priority), max(x.Left, g.until.Sub(now))
	}
}
