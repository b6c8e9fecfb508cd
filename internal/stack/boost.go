package stack

import (
	"context"
	"sync"

	"github.com/kvstored/kvstored/internal/fair"
	"github.com/kvstored/kvstored/key"
)

// boost is priority inheritance: a chunk that idle work is about to load, and a
// client waits for, is loaded in the turn of the client. Its mutex is a leaf.
type boost struct {
	mu struct {
		sync.Mutex
		wanted map[key.Key]*want
		lazy   map[key.Key]func() // idle loads that wait for their turn: ends the waiting
	}
}

// want is the urgent loads of one chunk.
type want struct {
	by fair.By // of the first
	n  int
}

// want notes an urgent load of k by a requester, until done is called.
func (b *boost) want(k key.Key, by fair.By) (done func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.wanted == nil {
		b.mu.wanted = make(map[key.Key]*want)
	}
	w := b.mu.wanted[k]
	if w == nil {
		w = &want{by: by}
		b.mu.wanted[k] = w
	}
	w.n++
	if end := b.mu.lazy[k]; end != nil {
		end()
	}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if w.n--; w.n == 0 {
			delete(b.mu.wanted, k)
		}
	}
}

// turn is whose turn a load of k by a requester takes: that of the first urgent
// load of k, where this one is idle. Where there is none, wait ends as soon as
// there is one. The caller calls done when it has its turn, or gave up.
func (b *boost) turn(ctx context.Context, k key.Key, by fair.By) (turn fair.By, wait context.Context, done func()) {
	if !by.Idle {
		return by, ctx, func() {}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if w := b.mu.wanted[k]; w != nil {
		return w.by, ctx, func() {}
	}
	if b.mu.lazy == nil {
		b.mu.lazy = make(map[key.Key]func())
	}
	ctx, end := context.WithCancel(ctx)
	b.mu.lazy[k] = end // there is one at a time: loads of a chunk are joined
	return by, ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		end()
		delete(b.mu.lazy, k)
	}
}

// enter waits for the turn of a load of k from a tier.
func (b *boost) enter(ctx context.Context, by Requester, k key.Key, from *level) (*fair.Pass, error) {
	for {
		turn, wait, done := b.turn(ctx, k, by.turn())
		pass, err := from.turns.Enter(wait, turn, from.usual.Load())
		done()
		if err == nil || ctx.Err() != nil || !turn.Idle {
			return pass, err
		}
	}
}
