package tier

import (
	"context"
	"sync"

	"github.com/kvstored/kvstored/internal/fair"
	"github.com/kvstored/kvstored/key"
)

// hurry keeps who is in a hurry from waiting behind idle work: a chunk that
// idle work is about to load, and somebody else wants, is loaded in that one's
// turn. Its mutex is a leaf.
type hurry struct {
	mu struct {
		sync.Mutex
		wanted map[key.Key]*want
		lazy   map[key.Key]func() // idle loads that wait for their turn: ends the waiting
	}
}

// want is those in a hurry for one chunk.
type want struct {
	by fair.By // of the first
	n  int
}

// want notes that by is in a hurry for k until done is called.
func (h *hurry) want(k key.Key, by fair.By) (done func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.wanted == nil {
		h.mu.wanted = make(map[key.Key]*want)
	}
	w := h.mu.wanted[k]
	if w == nil {
		w = &want{by: by}
		h.mu.wanted[k] = w
	}
	w.n++
	if end := h.mu.lazy[k]; end != nil {
		end()
	}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if w.n--; w.n == 0 {
			delete(h.mu.wanted, k)
		}
	}
}

// turn is whose turn a load of k takes that would be by's: where by is idle and
// somebody is in a hurry for k, that one's. Where nobody is, wait ends as soon
// as somebody is. The caller calls done when it has its turn, or gave up.
func (h *hurry) turn(ctx context.Context, k key.Key, by fair.By) (turn fair.By, wait context.Context, done func()) {
	if !by.Idle {
		return by, ctx, func() {}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if w := h.mu.wanted[k]; w != nil {
		return w.by, ctx, func() {}
	}
	if h.mu.lazy == nil {
		h.mu.lazy = make(map[key.Key]func())
	}
	ctx, end := context.WithCancel(ctx)
	h.mu.lazy[k] = end // there is one at a time: loads of a chunk are joined
	return by, ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		end()
		delete(h.mu.lazy, k)
	}
}

// enter waits for the turn of a load of k from p.
func (s *Stack) enter(ctx context.Context, by By, k key.Key, p Place) (*fair.Pass, error) {
	for {
		turn, wait, done := s.hurry.turn(ctx, k, by.turn())
		pass, err := s.turns[p].Enter(wait, turn, s.usual[p].Load())
		done()
		if err == nil || ctx.Err() != nil || !turn.Idle {
			return pass, err
		}
	}
}
