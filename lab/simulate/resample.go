package simulate

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
)

// Spread is what one policy made at one capacity of several samples of a
// trace. Rates are shares of the prompt tokens.
type Spread struct {
	Policy         string  `json:"policy"`
	CapacityBlocks int     `json:"capacity_blocks"`
	Samples        int     `json:"samples"`
	Mean           float64 `json:"mean_hit_rate"`
	Deviation      float64 `json:"deviation"` // of the rates, from sample to sample
	// Lead is how far the policy is above the best other one of the same
	// sample, on average; bounds do not count. Its
	// deviation is smaller than that of the rates: what makes a sample easy
	// makes it easy for all.
	Lead          float64 `json:"lead"`
	LeadDeviation float64 `json:"lead_deviation"`
}

const (
	leftOut = 5  // one session in so many is left out of a sample
	shared  = 16 // a block with so many different successors belongs to no session
)

// Resample runs the options on n samples of a trace, each without a random
// fifth of its sessions, and returns a Spread for each row of Run. The samples
// are the same in every run.
func Resample(ctx context.Context, t *Trace, o Options, n int) ([]Spread, error) {
	var samples [][]Row
	for seed := range n {
		rows, err := Run(ctx, t.without(uint64(seed)), o)
		if err != nil {
			return nil, err
		}
		samples = append(samples, rows)
	}
	var out []Spread
	rates, leads := make([]float64, n), make([]float64, n)
	for i, name := range o.Policies {
		for j, capacity := range o.Capacities {
			for s, rows := range samples {
				at := func(policy int) float64 { return rows[policy*len(o.Capacities)+j].OverallHitRate }
				best, found := 0.0, false
				for other, name := range o.Policies {
					if other != i && name != Belady && name != Infinite {
						best, found = max(best, at(other)), true
					}
				}
				rates[s], leads[s] = at(i), 0
				if found {
					leads[s] = at(i) - best
				}
			}
			row := Spread{Policy: name, CapacityBlocks: capacity, Samples: n}
			row.Mean, row.Deviation = spread(rates)
			row.Lead, row.LeadDeviation = spread(leads)
			out = append(out, row)
		}
	}
	return out, nil
}

// spread returns the mean and the standard deviation of a sample.
func spread(xs []float64) (mean, deviation float64) {
	for _, x := range xs {
		mean += x / float64(len(xs))
	}
	for _, x := range xs {
		deviation += (x - mean) * (x - mean)
	}
	return mean, math.Sqrt(deviation / float64(max(1, len(xs)-1)))
}

// without returns the trace without a random fifth of its sessions. A session
// is all requests that go on from the same block behind what prompts share.
func (t *Trace) without(seed uint64) *Trace {
	successors := make([]int, t.Distinct())
	for _, up := range t.parents {
		if up != 0 {
			successors[up-1]++
		}
	}
	r := rand.New(rand.NewPCG(seed, 0))
	out := make([]bool, t.Distinct())
	for b := range out {
		out[b] = r.IntN(leftOut) == 0
	}
	s := &Trace{blockTokens: t.blockTokens, parents: t.parents, notTree: t.notTree}
	at := 0
	for _, req := range t.requests {
		blocks := t.blocks[at:req.end]
		at = req.end
		own := 0
		for own < len(blocks)-1 && successors[blocks[own]] >= shared {
			own++
		}
		if len(blocks) > 0 && out[blocks[own]] {
			continue
		}
		s.blocks = append(s.blocks, blocks...)
		req.end = len(s.blocks)
		s.requests = append(s.requests, req)
		s.promptTokens += int64(req.tokens)
	}
	s.nextUse = sync.OnceValue(s.findNextUse)
	return s
}
