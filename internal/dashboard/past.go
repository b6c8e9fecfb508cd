package dashboard

import (
	"sync"
	"time"

	"github.com/kvstored/kvstored/tier"
)

const (
	sampleEvery = 2 * time.Second
	sampleCount = 1800 // an hour
)

// sample is the counters at a moment.
type sample struct {
	at      time.Time
	asked   uint64              // tokens
	hit     [tier.Places]uint64 // of these, by where they were
	stored  uint64              // bytes, by clients
	read    [tier.Places]uint64 // bytes, from each tier
	written [tier.Places]uint64
}

// past is the samples of the last hour.
type past struct {
	mu   sync.Mutex
	ring [sampleCount]sample
	n    int // added, ever
}

func sampleOf(n *Numbers, at time.Time) sample {
	s := sample{at: at, asked: n.Server.AskedTokens, stored: n.Server.StoredBytes}
	for p := range tier.Place(tier.Places) {
		s.hit[p] = n.Server.HitTokens[p]
		t := n.Tiers[p]
		s.read[p], s.written[p] = t.GetBytes, t.PutBytes
	}
	return s
}

func (p *past) add(s sample) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ring[p.n%sampleCount] = s
	p.n++
}

// steps lists at most so many pairs of moments that follow each other, oldest first,
// with as much time between the two of each.
func (p *past) steps(most int) []sample {
	p.mu.Lock()
	defer p.mu.Unlock()
	have := min(p.n, sampleCount)
	every := max(1, (have+most-1)/most)
	var out []sample
	for i := p.n - have; i < p.n; i++ {
		if (p.n-1-i)%every == 0 {
			out = append(out, p.ring[i%sampleCount])
		}
	}
	return out
}
