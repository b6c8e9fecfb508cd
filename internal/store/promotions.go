package store

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// promotions is the chunks in flight to DRAM, one promotion a key, and those being
// deleted meanwhile: a promotion may have read its chunk before that was deleted,
// and must not publish it.
//
// Its mutex is held around one Publish in the hot tier: either a chunk is in
// DRAM when its deletion begins, and is deleted there, or it never gets there.
type promotions struct {
	running atomic.Int32 // deletions
	mu      struct {
		sync.Mutex
		chunks    map[key.Key]*promotion
		deletions map[*deletion]struct{}
	}
}

// promotion is one chunk in flight.
type promotion struct {
	key     key.Key
	from    tier.Place
	deleted bool
	cancel  context.CancelFunc // its context ends when it is deleted
}

// errDeleted is the answer to a load of a chunk that is deleted while it is in flight.
var errDeleted = fmt.Errorf("it is being deleted: %w", tier.ErrNotFound)

// begin notes that k is about to be read from a tier. The context it returns
// ends if k is deleted there. The promotion ends with end.
func (ps *promotions) begin(ctx context.Context, k key.Key, from tier.Place) (context.Context, *promotion, error) {
	ctx, cancel := context.WithCancel(ctx)
	p := &promotion{key: k, from: from, cancel: cancel}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for d := range ps.mu.deletions {
		if p.hit(d) {
			cancel()
			return ctx, nil, errDeleted
		}
	}
	if ps.mu.chunks == nil {
		ps.mu.chunks = make(map[key.Key]*promotion)
	}
	ps.mu.chunks[k] = p
	return ctx, p, nil
}

func (ps *promotions) end(p *promotion) {
	p.cancel()
	ps.mu.Lock()
	defer ps.mu.Unlock()
	delete(ps.mu.chunks, p.key)
}

// publish makes a chunk visible that was read. One that was deleted meanwhile is
// not, whether or not it could be read; its error is that then.
func (ps *promotions) publish(p *promotion, read error, publish func()) error {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p.deleted {
		return errDeleted
	}
	if read == nil {
		publish()
	}
	return read
}

// readmit publishes a chunk that comes back from transit, unless it is being deleted.
func (ps *promotions) readmit(k key.Key, publish func()) {
	p := promotion{key: k, from: tier.CPU}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for d := range ps.mu.deletions {
		if p.hit(d) {
			return
		}
	}
	publish()
}

// refuses reports whether a deletion in DRAM, or everywhere, has k.
func (ps *promotions) refuses(k key.Key) bool {
	refused := true
	ps.readmit(k, func() { refused = false })
	return refused
}

// refuse keeps the chunks that d deletes from being promoted, those in flight included,
// until the call of the result.
func (ps *promotions) refuse(d *deletion) (end func()) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.mu.chunks {
		if p.hit(d) {
			p.deleted = true
			p.cancel()
		}
	}
	if ps.mu.deletions == nil {
		ps.mu.deletions = make(map[*deletion]struct{})
	}
	ps.mu.deletions[d] = struct{}{}
	ps.running.Add(1)
	return func() {
		ps.mu.Lock()
		defer ps.mu.Unlock()
		ps.running.Add(-1)
		delete(ps.mu.deletions, d)
	}
}

// hit reports whether d deletes the chunk in flight.
func (p *promotion) hit(d *deletion) bool { return d.from.Has(p.from) && d.Has(p.key) }

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
	by tier.By // of the first
	n  int
}

// want notes an urgent load of k by a requester, until done is called.
func (b *boost) want(k key.Key, by tier.By) (done func()) {
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
func (b *boost) turn(ctx context.Context, k key.Key, by tier.By) (turn tier.By, wait context.Context, done func()) {
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
func (b *boost) enter(ctx context.Context, by Requester, k key.Key, from *level) (*tier.Pass, error) {
	for {
		turn, wait, done := b.turn(ctx, k, by.turn())
		pass, err := from.admission.Enter(wait, turn, from.usual.Load())
		done()
		if err == nil || ctx.Err() != nil || !turn.Idle {
			return pass, err
		}
	}
}
