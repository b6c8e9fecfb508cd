package admin

import (
	"sync"
	"time"

	"github.com/kvstored/kvstored/tier"
)

const (
	sampleEvery = 2 * time.Second
	sampleCount = 1800 // an hour
	stepsShown  = 60
)

// Sample is the counters at a moment; tiers are in order, the nearest first.
type Sample struct {
	AgeSeconds   float64             `json:"age_seconds"`
	AskedTokens  uint64              `json:"asked_tokens"`
	HitTokens    [tier.Places]uint64 `json:"hit_tokens"`
	StoredBytes  uint64              `json:"stored_bytes"` // by clients
	ReadBytes    [tier.Places]uint64 `json:"read_bytes"`   // from each tier
	WrittenBytes [tier.Places]uint64 `json:"written_bytes"`
}

// hour is the last one.
type hour struct {
	Names   bool     `json:"names"`   // whether calls with names are answered
	Samples []Sample `json:"samples"` // oldest first
}

// past is the samples of the last hour.
type past struct {
	mu   sync.Mutex
	ring [sampleCount]struct {
		at time.Time
		Sample
	}
	n int // added, ever
}

func (p *past) add(at time.Time, s Sample) {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := &p.ring[p.n%sampleCount]
	of.at, of.Sample = at, s
	p.n++
}

// steps lists at most so many steps between moments that follow each other, oldest first,
// with as much time in each.
func (p *past) steps(now time.Time, most int) []Sample {
	p.mu.Lock()
	defer p.mu.Unlock()
	have := min(p.n, sampleCount)
	every := max(1, (have+most-1)/most)
	out := []Sample{}
	for i := p.n - have; i < p.n; i++ {
		if (p.n-1-i)%every == 0 {
			of := p.ring[i%sampleCount]
			of.AgeSeconds = now.Sub(of.at).Seconds()
			out = append(out, of.Sample)
		}
	}
	return out
}
