package server

import (
	"context"
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
	// pauseBytes is what a prompt that waits has besides its chunks: a timer, and a
	// goroutine while it is due and others are at work.
	pauseBytes = 4 << 10
)

// pauses promotes prompts at a time of their own, as idle work, one after the other:
// those of conversations that rest.
type pauses struct {
	server *Server
	bytes  atomic.Int64
	turn   chan struct{}   // capacity 1: had by the one at work
	ctx    context.Context // until close
	cancel func()
}

func newPauses(s *Server) *pauses {
	p := &pauses{server: s, turn: make(chan struct{}, 1)}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// close returns once nothing is promoted any more.
func (p *pauses) close() {
	p.cancel()
	p.turn <- struct{}{}
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
	time.AfterFunc(after, func() {
		defer p.bytes.Add(-n)
		select {
		case p.turn <- struct{}{}:
			defer func() { <-p.turn }()
			p.promote(p.ctx, chains)
		case <-p.ctx.Done():
		}
	})
}

func (p *pauses) promote(ctx context.Context, chains []key.Chain) {
	g := group{stack: p.server.o.Stack, search: tier.All, chains: chains}
	m, err := g.match(ctx)
	if err == nil && m.In[tier.CPU].Chunks < m.Chunks {
		p.server.newWarming(ctx, g, &m, ledger.Daemon, nil).run(ctx)
	}
}
