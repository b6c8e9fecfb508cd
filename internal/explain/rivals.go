package explain

import (
	"maps"
	"sync"
	"time"

	"github.com/kvstored/kvstored/key"
)

const (
	minutes    = 60
	mostSpaces = 16 // of a minute and a tier
)

// Others are the spaces that have no count of their own, or none: chunks can go while
// none come.
var Others key.SpaceID

// Rivalry is two spaces.
type Rivalry struct{ By, Of key.SpaceID }

// counts are by space.
type counts map[key.SpaceID]uint64

// add counts n more of a space.
func (c *counts) add(id key.SpaceID, n uint64) {
	if *c == nil {
		*c = make(counts)
	}
	if _, known := (*c)[id]; !known && len(*c) >= mostSpaces {
		id = Others
	}
	(*c)[id] += n
}

// minute counts arrivals and departures.
type minute struct {
	at         int64 // since 1970
	came, gone [maxTiers]counts
}

// Rivals is the last hour. It is safe for concurrent use.
type Rivals struct {
	mu   sync.Mutex
	ring [minutes]minute
}

// now is the present minute; called with the mutex held.
func (t *Rivals) now() *minute {
	at := time.Now().Unix() / 60
	m := &t.ring[at%minutes]
	if m.at != at {
		*m = minute{at: at}
	}
	return m
}

// Came counts bytes of a space that a tier has come to have.
func (t *Rivals) Came(tier uint8, id key.SpaceID, bytes uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now().came[tier%maxTiers].add(id, bytes)
}

// Gone counts a chunk of a space that was evicted from a tier, the last to have it.
func (t *Rivals) Gone(tier uint8, id key.SpaceID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now().gone[tier%maxTiers].add(id, 1)
}

// Pairs is how many chunks of each space went for each, in the last hour.
func (t *Rivals) Pairs() map[Rivalry]float64 {
	out := make(map[Rivalry]float64)
	t.mu.Lock()
	now := t.now()
	oldest, ring := now.at-minutes, t.ring
	m := &ring[now.at%minutes] // only its counts change yet
	for tier := range m.gone {
		m.came[tier], m.gone[tier] = maps.Clone(m.came[tier]), maps.Clone(m.gone[tier])
	}
	t.mu.Unlock()
	for i := range ring {
		if m := &ring[i]; m.at > oldest {
			for tier := range m.gone {
				share(out, m.gone[tier], m.came[tier])
			}
		}
	}
	return out
}

// share adds what went to those that came.
func share(out map[Rivalry]float64, gone, came counts) {
	sum := uint64(0)
	for _, n := range came {
		sum += n
	}
	for of, n := range gone {
		if sum == 0 {
			out[Rivalry{Others, of}] += float64(n)
		}
		for by, bytes := range came {
			out[Rivalry{by, of}] += float64(n) * float64(bytes) / float64(max(sum, 1))
		}
	}
}
