package server

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

const (
	// maxPausesBytes bounds the memory of what waits for its time: a prompt beyond it is
	// promoted when it is asked for.
	maxPausesBytes = 16 << 20
	// pauseBytes is what a prompt that waits has besides its chunks: a timer, a function
	// and a place in a list.
	pauseBytes = 512
)

// pauses promotes prompts at a time of their own, as idle work, one after the other:
// those of conversations that rest.
type pauses struct {
	server *Server
	bytes  atomic.Int64
	ctx    context.Context // until close
	cancel func()
	work   sync.WaitGroup
	mu     struct {
		sync.Mutex
		due   []pause // prompts whose time has come
		works bool    // whether a timer's goroutine promotes them
	}
}

// pause is a prompt that waits.
type pause struct {
	chains []key.Chain
	bytes  int64
}

func newPauses(s *Server) *pauses {
	p := &pauses{server: s}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// close returns once nothing is promoted any more.
func (p *pauses) close() {
	p.cancel()
	p.mu.Lock() // a timer whose goroutine begins to work has done so, or sees the end
	p.mu.due = nil
	p.mu.Unlock()
	p.work.Wait()
}

// pausedBytes is the memory of a prompt that waits.
func pausedBytes(chains []key.Chain) int64 {
	c := &chains[0]
	return pauseBytes + int64(cap(chains)*int(unsafe.Sizeof(*c))+cap(c.Hashes)*int(unsafe.Sizeof(key.Hash{}))+4*cap(c.Tokens))
}

// add has a prompt promoted after a while. Its slices may not be changed any more.
func (p *pauses) add(chains []key.Chain, after time.Duration) {
	n := pausedBytes(chains)
	if p.bytes.Add(n) > maxPausesBytes {
		p.bytes.Add(-n)
		return
	}
	time.AfterFunc(after, func() { p.isDue(pause{chains, n}) })
}

// isDue promotes a prompt and all that are due by then, or leaves it to another timer that does.
func (p *pauses) isDue(x pause) {
	p.mu.Lock()
	p.mu.due = append(p.mu.due, x)
	idle := !p.mu.works && p.ctx.Err() == nil
	if idle {
		p.mu.works = true
		p.work.Add(1)
	}
	p.mu.Unlock()
	if !idle {
		return
	}
	defer p.work.Done()
	for x, more := p.next(); more; x, more = p.next() {
		p.promote(p.ctx, x.chains)
		p.bytes.Add(-x.bytes)
	}
}

func (p *pauses) next() (x pause, more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.mu.due) == 0 || p.ctx.Err() != nil {
		for _, x := range p.mu.due {
			p.bytes.Add(-x.bytes)
		}
		p.mu.due, p.mu.works = nil, false
		return x, false
	}
	x, p.mu.due = p.mu.due[0], p.mu.due[1:]
	return x, true
}

func (p *pauses) promote(ctx context.Context, chains []key.Chain) {
	g := group{stack: p.server.o.Stack, search: tier.All, chains: chains}
	m, err := g.match(ctx)
	if err == nil && m.In[tier.CPU].Chunks < m.Chunks {
		p.server.newWarming(ctx, g, &m, ledger.Daemon, nil).run(ctx)
	}
}
