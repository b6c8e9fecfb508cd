package hint

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/kvstored/kvstored/key"
)

// Held is what one claimant retains: a name of one user in one space.
type Held struct {
	Name           string  `json:"name"` // a scope or a session
	UID            uint32  `json:"uid"`
	Space          string  `json:"space"` // its id
	Chunks         int     `json:"chunks"`
	Bytes          int64   `json:"bytes"`    // payload, as far as it is known
	Priority       uint8   `json:"priority"` // the highest
	ExpiresSeconds float64 `json:"expires_seconds"`
}

// List is what claimants retain, most bytes first: the first most of them. more is how
// many are left out. It takes the lock for a round of chunks at a time, so that what
// changes meanwhile may be in it or not.
func (t *Claims) List(most int) (list []Held, more int) {
	now := t.now()
	for _, h := range t.holders() {
		x := Held{Name: h.Name, UID: h.UID, Space: h.Space.String()}
		for some := range slices.Chunk(t.hashes(h), round) {
			t.sum(&x, h, some, now)
		}
		if x.Chunks > 0 {
			list = append(list, x)
		}
	}
	slices.SortFunc(list, func(a, b Held) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.UID, b.UID), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Space, b.Space))
	})
	more = max(0, len(list)-most)
	return list[:len(list)-more], more
}

func (t *Claims) holders() []*holder {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.mu.holders))
}

func (t *Claims) hashes(h *holder) []key.Hash {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(h.chunks))
}

// sum adds the chunks that a claimant still retains.
func (t *Claims) sum(x *Held, h *holder, some []key.Hash, now time.Time) {
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
		x.Priority, x.ExpiresSeconds = max(x.Priority, g.priority), max(x.ExpiresSeconds, g.until.Sub(now).Seconds())
	}
}
