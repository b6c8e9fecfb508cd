package tier

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/kvstored/kvstored/key"
)

// Rest finds out how much of a chain a shared tier has beyond what was known,
// while the known part is being loaded. Find is called once; Reach and Found
// from any goroutine.
type Rest struct {
	stack *Stack
	far   Shared
	chain *key.Chain
	mask  Set
	begin int // chunks of the chain known before

	found atomic.Int64 // chunks of the chain known now, from its start
	mu    struct {
		sync.Mutex
		done   bool
		err    error         // why the tier did not say all
		change chan struct{} // closed at the next change
	}
}

// Rest returns nil if nothing can be beyond m: there is no shared tier in the
// search range, or it is switched off, or said a moment ago that it does not
// have the next chunk.
func (s *Stack) Rest(c *key.Chain, m *Match, search Set) *Rest {
	far, ok := s.tiers[Remote].(Shared)
	mask := search & s.reach(c.Space) &^ s.off()
	next := c.Skip + m.Chunks
	if !ok || !mask.Has(Remote) || next >= c.Len() || far.Absent(c.Key(next)) {
		return nil
	}
	r := &Rest{stack: s, far: far, chain: c, mask: mask, begin: next}
	r.found.Store(int64(next))
	r.mu.change = make(chan struct{})
	return r
}

// Unasked is why it is unknown whether a chain goes on beyond m: the shared tier
// in the search range is switched off. Nil if that is known, or Rest finds out.
func (s *Stack) Unasked(c *key.Chain, m *Match, search Set) error {
	next := c.Skip + m.Chunks
	far, ok := s.tiers[Remote].(Shared)
	if !ok || !(search & s.reach(c.Space)).Has(Remote) || !s.off().Has(Remote) || next >= c.Len() || far.Absent(c.Key(next)) {
		return nil
	}
	return &LoadError{Place: Remote, Err: ErrOff}
}

// Begin is how many chunks of the chain were known before, its Skip included.
func (r *Rest) Begin() int { return r.begin }

// Find asks until the end of the prefix is certain or ctx ends. What it finds
// is in the index at once.
func (r *Rest) Find(ctx context.Context) {
	defer r.end()
	for at := r.begin; at < r.chain.Len() && !r.far.Absent(r.chain.Key(at)); {
		ks := make([]key.Key, 0, r.chain.Len()-at)
		for i := at; i < r.chain.Len(); i++ {
			ks = append(ks, r.chain.Key(i))
		}
		from := at
		n, err := r.far.Find(ctx, ks, func(n int) { r.learn(from, from+n) })
		if err != nil {
			r.stack.log.Debug().Err(err).Msg("the remote tier does not say what it has")
			r.fail(err)
			return
		}
		if n == 0 || !r.learn(from, from+n) {
			return
		}
		// Behind what the far tier has, a near one may go on.
		at = r.advance(from + n)
		if at == from+n {
			return
		}
	}
}

// learn notes that chunks from..to are there.
func (r *Rest) learn(from, to int) bool {
	if err := r.stack.learn(r.chain, from, to, Remote); err != nil {
		return false // it contradicts what is known: the prefix ends here
	}
	r.reach(to)
	return true
}

// advance returns how far the chain is known from at on.
func (r *Rest) advance(at int) int {
	sc := borrow(r.chain.Len())
	defer sc.give()
	known := r.stack.locate(r.chain, sc.at)
	for at < known && Set(sc.at[at])&r.mask != 0 {
		at++
	}
	r.reach(at)
	return at
}

// reach tells who waits that the first n chunks are there.
func (r *Rest) reach(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if int64(n) > r.found.Load() {
		r.found.Store(int64(n))
		close(r.mu.change)
		r.mu.change = make(chan struct{})
	}
}

func (r *Rest) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.err = &LoadError{Place: Remote, Err: err}
}

// Err is why the tier did not say whether the prefix goes on, where Reach has
// reported that it does not; nil if it is certain.
func (r *Rest) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.err
}

func (r *Rest) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.done = true
	close(r.mu.change)
	r.mu.change = make(chan struct{})
}

// Reach waits until it is certain whether chunk i belongs to the prefix, and
// reports that; false too if ctx ends first.
func (r *Rest) Reach(ctx context.Context, i int) bool {
	for {
		r.mu.Lock()
		done, change := r.mu.done, r.mu.change
		r.mu.Unlock()
		if int64(i) < r.found.Load() {
			return true
		}
		if done {
			return false
		}
		select {
		case <-change:
		case <-ctx.Done():
			return false
		}
	}
}

// Found is how many chunks of the chain are known now, its Skip included.
func (r *Rest) Found() int { return int(r.found.Load()) }
