package hint

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/kvstored/kvstored/key"
)

// Held is what one claimant claims: a name of one user in one space.
type Held struct {
	Name           string  `json:"name"` // a scope, a session or a lookup id
	UID            uint32  `json:"uid"`
	Space          string  `json:"space"`      // its id
	Connection     uint64  `json:"connection"` // of a pin; 0: it is none
	Chunks         int     `json:"chunks"`
	Bytes          int64   `json:"bytes"` // payload, as far as it is known
	ExpiresSeconds float64 `json:"expires_seconds"`
}

// List is what claimants claim, hard or soft, the first most of them: soft claims by bytes,
// most first, hard ones by name. more is how many are left out. It takes the lock for a
// round of chunks at a time, so that what changes meanwhile may be in it or not.
func (t *Claims) List(hard bool, most int) (list []Held, more int) {
	now := t.now()
	for _, h := range t.holders() {
		if hard != (h.Connection != 0) {
			continue
		}
		x := Held{Name: h.Name, UID: h.UID, Space: h.Space.String(), Connection: h.Connection}
		for some := range slices.Chunk(t.claimed(h.Claimant), round) {
			t.sum(&x, h, some, now)
		}
		if x.Chunks > 0 {
			list = append(list, x)
		}
	}
	slices.SortFunc(list, func(a, b Held) int {
		named := cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Connection, b.Connection), cmp.Compare(a.UID, b.UID), cmp.Compare(a.Space, b.Space))
		if hard {
			return named
		}
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), named)
	})
	more = max(0, len(list)-most)
	return list[:len(list)-more], more
}

func (t *Claims) holders() []*holder {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.mu.holders))
}

// sum adds the chunks that a claimant still claims.
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
		x.ExpiresSeconds = max(x.ExpiresSeconds, g.until.Sub(now).Seconds(), h.until.Sub(now).Seconds())
	}
}
