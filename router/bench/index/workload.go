package main

import "github.com/kvstored/kvstored/router/bench/trace"

const (
	workers     = 64
	workerRoom  = 16384 // blocks
	traceTokens = 512   // of a block of the trace
)

// event is what one request does to its worker.
type event struct {
	worker  int
	prompt  []uint64 // all hashes of the request
	known   int      // how many of them the worker had
	removed []uint64 // what it let go of
}

func (e event) blocks() int { return len(e.prompt) - e.known + len(e.removed) }

// loadTrace reads the blocks of all requests.
func loadTrace(name string, limit int) ([][]uint64, error) {
	requests, err := trace.Read(name, limit)
	if err != nil {
		return nil, err
	}
	all := make([][]uint64, len(requests))
	for i, r := range requests {
		all[i] = r.Blocks
	}
	return all, nil
}

// cluster makes events of requests.
type cluster struct {
	trace  [][]uint64
	split  int
	caches [workers]cache
	next   int // request, counted over all copies
}

func newCluster(trace [][]uint64, split int) *cluster {
	c := &cluster{trace: trace, split: split}
	for i := range c.caches {
		c.caches[i] = newCache()
	}
	return c
}

// request returns the next event. A round over the trace has blocks of its own.
func (c *cluster) request() event {
	ids, round := c.trace[c.next%len(c.trace)], uint64(c.next/len(c.trace))
	e := event{worker: c.next % workers, prompt: make([]uint64, 0, len(ids)*c.split)}
	c.next++
	for _, id := range ids {
		for part := range c.split {
			e.prompt = append(e.prompt, mix(round<<40|id<<8|uint64(part)))
		}
	}
	e.known, e.removed = c.caches[e.worker].use(e.prompt)
	return e
}

// copies returns the events of so many rounds over the trace.
func (c *cluster) copies(n int) []event {
	all := make([]event, n*len(c.trace))
	for i := range all {
		all[i] = c.request()
	}
	return all
}

func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// cache is one worker's blocks, in a ring by last use.
type cache struct {
	at    map[uint64]int32
	links [][2]int32 // before and after; place 0 is the ring's head
	keys  []uint64
}

func newCache() cache {
	return cache{at: make(map[uint64]int32, workerRoom), links: make([][2]int32, 1, workerRoom+1), keys: make([]uint64, 1, workerRoom+1)}
}

// use has a worker compute a prompt: it returns how many leading blocks were
// there, and what had to go for the others. The beginning of the prompt is used
// last, so that ends go first, as engines free them.
func (c *cache) use(prompt []uint64) (known int, removed []uint64) {
	for known < len(prompt) {
		if _, there := c.at[prompt[known]]; !there {
			break
		}
		known++
	}
	for i := len(prompt) - 1; i >= 0; i-- {
		n, there := c.at[prompt[i]]
		switch {
		case there:
			c.unlink(n)
		case len(c.keys) <= workerRoom:
			n = int32(len(c.keys))
			c.keys, c.links = append(c.keys, 0), append(c.links, [2]int32{})
		default:
			n = c.links[0][0] // the one used longest ago
			c.unlink(n)
			removed = append(removed, c.keys[n])
			delete(c.at, c.keys[n])
		}
		c.at[prompt[i]], c.keys[n] = n, prompt[i]
		first := c.links[0][1]
		c.links[n] = [2]int32{0, first}
		c.links[first][0], c.links[0][1] = n, n
	}
	return known, removed
}

func (c *cache) unlink(n int32) {
	before, after := c.links[n][0], c.links[n][1]
	c.links[before][1], c.links[after][0] = after, before
}
