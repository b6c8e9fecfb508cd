package server

import (
	"context"
	"sync"

	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

const (
	// maxNextTurns bounds how many prompts wait to be brought up; who grew
	// first is forgotten first.
	maxNextTurns = 64
	// minChunkBytes of DRAM go for each chunk. A prompt that could not come up
	// whole is passed over, so that what waits stays below a third of what may
	// come up.
	minChunkBytes = 4096
)

// nextTurns brings prompts that have grown up to DRAM, as idle work: a
// conversation goes on with all that was said so far, of which some may have
// been computed again because it did not come up from below in time.
type nextTurns struct {
	server *Server
	grew   chan struct{} // capacity 1
	mu     struct {
		sync.Mutex
		waiting []key.Chain // newest last; nobody changes them
	}
}

// add notes that chunks of a chain were stored.
func (n *nextTurns) add(c *key.Chain) {
	if c.Len() == 0 || int64(c.Len()) > n.server.settings().Prefetch.NextTurnBytes/minChunkBytes {
		return
	}
	whole := *c
	whole.Skip = 0
	n.mu.Lock()
	n.forget(whole.Key(whole.Len() - 1))
	if n.mu.waiting = append(n.mu.waiting, whole); len(n.mu.waiting) > maxNextTurns {
		n.mu.waiting = append(n.mu.waiting[:0], n.mu.waiting[1:]...)
	}
	n.mu.Unlock()
	select {
	case n.grew <- struct{}{}:
	default:
	}
}

// forget takes out the chain that ends with k; called with the mutex held.
func (n *nextTurns) forget(k key.Key) {
	for i, c := range n.mu.waiting {
		if c.Key(c.Len()-1) == k {
			n.mu.waiting = append(n.mu.waiting[:i], n.mu.waiting[i+1:]...)
			return
		}
	}
}

// take is the chain that grew last.
func (n *nextTurns) take() (c key.Chain, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	last := len(n.mu.waiting) - 1
	if last < 0 {
		return c, false
	}
	c, n.mu.waiting[last] = n.mu.waiting[last], key.Chain{}
	n.mu.waiting = n.mu.waiting[:last]
	return c, true
}

// run works until ctx ends, on one prompt at a time.
func (n *nextTurns) run(ctx context.Context) {
	for {
		select {
		case <-n.grew:
		case <-ctx.Done():
			return
		}
		for c, ok := n.take(); ok && ctx.Err() == nil; c, ok = n.take() {
			n.promote(ctx, c)
		}
	}
}

func (n *nextTurns) promote(ctx context.Context, c key.Chain) {
	s := n.server
	g := group{stack: s.o.Stack, search: tier.All, chains: []key.Chain{c}}
	m, err := g.match(ctx)
	if err != nil || m.In[tier.CPU].Chunks == m.Chunks {
		return // whatever is known is there: what others may have is not asked for
	}
	w := s.newWarming(ctx, g, &m, stack.Requester{Job: s.ids.Add(1)}, nil, s.settings().Prefetch.NextTurnBytes)
	w.moved = s.count.broughtUp
	w.run(ctx)
}
