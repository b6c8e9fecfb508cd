package server

import (
	"container/heap"
	"context"
	"sync"
	"time"
	"unsafe"

	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// maxPausesBytes bounds the memory of what waits for its time, of which each user has
// half of what the others leave: a prompt beyond it is promoted when it is asked for.
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
		users map[uint32]int // bytes of each; none for 0
		over  uint64         // that found no room here
	}
}

// due is a prompt, by rank, and when it is to be promoted.
type due struct {
	uid    uint32 // whose it is
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

// add has a prompt promoted at a time, for a user. Its slices may not be changed any more.
func (p *pauses) add(uid uint32, chains []key.Chain, at time.Time) {
	d := due{uid, at, chains}
	p.mu.Lock()
	if p.fits(&d) {
		p.spend(uid, d.bytes())
		heap.Push(&p.mu.due, d)
	} else {
		p.mu.over++
	}
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// fits reports whether there is room for a prompt of its user, with the mutex held.
func (p *pauses) fits(d *due) bool {
	own := p.mu.users[d.uid]
	return own+d.bytes() <= (maxPausesBytes-(p.mu.bytes-own))/2
}

// spend counts bytes of a user, with the mutex held.
func (p *pauses) spend(uid uint32, n int) {
	if p.mu.users == nil {
		p.mu.users = make(map[uint32]int)
	}
	p.mu.bytes += n
	if p.mu.users[uid] += n; p.mu.users[uid] == 0 {
		delete(p.mu.users, uid)
	}
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
	p.spend(d.uid, -d.bytes())
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
