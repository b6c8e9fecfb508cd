package main

import (
	"math"
	"slices"
)

// router chooses engines. Its methods are called in the order of time.
type router interface {
	// choose returns the engine for a request, and how many tokens it believes to
	// be there.
	choose(now float64, r *running) (engine, said int)
	// first says that a prefill is done: blocks are there, and others are gone.
	first(now float64, engine int, r *running, gone []uint64)
	// last says that a request has ended.
	last(now float64, engine int, r *running)
}

// results are what one router came to.
type results struct {
	hits      float64 // share of tokens
	vain      float64 // share of tokens that were said to be there and were not
	p50, p99  float64 // seconds until the first token
	imbalance float64 // the busiest engine, of the mean
}

// cluster is the engines of one run.
type cluster struct {
	settings
	engines []*engine
	router  router
	done    []*running
}

// settings are alike for all routers.
type settings struct {
	workers, room, blockTokens int
	prefill, answer            float64
}

// advance lets an engine work until now. Ends are told in their order.
func (c *cluster) advance(now float64, n int) {
	e := c.engines[n]
	for {
		var next *running // the end that comes first
		when, ends := now, false
		for _, r := range e.active {
			if t := r.first; r.reservation != told && t <= when {
				next, when, ends = r, t, false
			} else if r.reservation == told && r.last <= when {
				next, when, ends = r, r.last, true
			}
		}
		if len(e.waiting) > 0 && max(e.waiting[0].at, e.free) < when {
			e.begin(c.blockTokens, c.answer)
			continue
		}
		switch {
		case next == nil && len(e.waiting) > 0 && max(e.waiting[0].at, e.free) <= now:
			e.begin(c.blockTokens, c.answer)
		case next == nil:
			return
		case ends:
			e.active = slices.DeleteFunc(e.active, func(r *running) bool { return r == next })
			c.router.last(when, n, next)
		default:
			c.router.first(when, n, next, e.use(next.blocks))
			next.reservation = told
		}
	}
}

// told marks a request whose first token the router was told of.
const told = math.MaxUint64

// play sends all requests.
func (c *cluster) play(trace []*request) results {
	for range c.workers {
		c.engines = append(c.engines, newEngine(c.room, c.prefill))
	}
	for _, q := range trace {
		for n := range c.engines {
			c.advance(q.at, n)
		}
		r := &running{request: q}
		var n int
		n, r.said = c.router.choose(q.at, r)
		c.engines[n].waiting = append(c.engines[n].waiting, r)
		c.done = append(c.done, r)
	}
	for n := range c.engines {
		c.advance(math.Inf(1), n)
	}
	return c.results()
}

// most is the share of tokens that came before, behind the same beginning: no way to
// choose finds more, nor does one engine with room for all.
func (s settings) most(trace []*request) float64 {
	seen := newEngine(math.MaxInt, s.prefill)
	tokens, hits := 0, 0
	for _, r := range trace {
		tokens, hits = tokens+r.tokens, hits+min(seen.known(r.blocks)*s.blockTokens, r.tokens-1)
		seen.use(r.blocks)
	}
	return float64(hits) / float64(tokens)
}

func (c *cluster) results() (out results) {
	var waits []float64
	tokens, hits, vain := 0, 0, 0
	for _, r := range c.done {
		waits = append(waits, r.first-r.at)
		tokens, hits, vain = tokens+r.tokens, hits+r.hit, vain+max(r.said-r.hit, 0)
	}
	slices.Sort(waits)
	most, sum := 0.0, 0.0
	for _, e := range c.engines {
		most, sum = max(most, e.busy), sum+e.busy
	}
	return results{
		hits: float64(hits) / float64(tokens), vain: float64(vain) / float64(tokens),
		p50: waits[len(waits)/2], p99: waits[len(waits)*99/100], imbalance: most / (sum / float64(len(c.engines))),
	}
}
