package server

import (
	"container/heap"
	"context"
	"sync"
	"time"
	"unsafe"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// maxPausesBytes bounds the memory of what waits for its time: a prompt beyond it is
// promoted when it is asked for.
const maxPausesBytes = 16 << 20

// pauses promotes prompts at a time of their own, as idle work, one after the other:
// those of conversations that rest.
type pauses struct {
	server *Server
	wake   chan struct{} // capacity 1: another is the first
	mu     struct {
		sync.Mutex
		due   dueHeap
		bytes int
	}
}

// due is a prompt, by rank, and when it is to be promoted.
type due struct {
	at     time.Time
	chains []key.Chain // never changed
}

func (d *due) bytes() int {
	c := &d.chains[0]
	return recentEntryBytes + cap(d.chains)*int(unsafe.Sizeof(*c)) + cap(c.Hashes)*int(unsafe.Sizeof(key.Hash{})) + 4*cap(c.Tokens)
}

// dueHeap has the next on top.
type dueHeap []due

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(d any)        { *h = append(*h, d.(due)) }
func (h *dueHeap) Pop() any {
	last := len(*h) - 1
	d := (*h)[last]
	(*h)[last] = due{}
	*h = (*h)[:last]
	return d
}

// add has a prompt promoted at a time. Its slices may not be changed any more.
func (p *pauses) add(chains []key.Chain, at time.Time) {
	d := due{at, chains}
	p.mu.Lock()
	if p.mu.bytes+d.bytes() <= maxPausesBytes {
		p.mu.bytes += d.bytes()
		heap.Push(&p.mu.due, d)
	}
	p.mu.Unlock()
	base.Poke(p.wake)
}

// take takes out a prompt that is due now, or says when the next is.
func (p *pauses) take() (d due, ok bool, next time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.mu.due) == 0 {
		return d, false, time.Hour
	}
	if next = time.Until(p.mu.due[0].at); next > 0 {
		return d, false, next
	}
	d = heap.Pop(&p.mu.due).(due)
	p.mu.bytes -= d.bytes()
	return d, true, 0
}

// run works until ctx ends.
func (p *pauses) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		d, ok, next := p.take()
		if ok {
			p.promote(ctx, d.chains)
			continue
		}
		timer.Reset(next)
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-timer.C:
		}
	}
}

func (p *pauses) promote(ctx context.Context, chains []key.Chain) {
	s := p.server
	g := group{stack: s.o.Stack, search: tier.All, chains: chains}
	m, err := g.match(ctx)
	if err != nil || m.In[tier.CPU].Chunks == m.Chunks {
		return
	}
	w := s.newWarming(ctx, g, &m, stack.Requester{Job: s.ids.Add(1)}, nil, s.o.Arena.Stats().CapacityBytes/warmShare)
	w.run(ctx)
}
