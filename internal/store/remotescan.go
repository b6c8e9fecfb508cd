package store

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// RemoteScan finds out how much of a chain a shared tier has beyond the known part,
// while the known part is being loaded. Find is called once; Reach and Found
// from any goroutine.
type RemoteScan struct {
	lookups *Lookups
	far     *level
	chain   *key.Chain
	mask    tier.Set
	begin   int // chunks of the chain known before

	found atomic.Int64 // chunks of the chain known now, from its start
	mu    struct {
		sync.Mutex
		done  bool
		err   error       // why the tier did not say all
		moved base.Signal // found or done
	}
}

// ScanRemote returns nil if nothing of c can be there from chunk next on: there is no shared
// tier in the search range, or it said a moment ago that it does not have that chunk. An
// error says that the tier is switched off, so that it cannot be asked.
func (l *Lookups) ScanRemote(c *key.Chain, next int, search tier.Set) (*RemoteScan, error) {
	far, mask := l.levels.far(), search&l.writers.Reach(c.Space)
	switch {
	case l.distrusted.Has(c.Space), far == nil || !mask.Has(far.Place) || next >= c.Len() || far.Shared.Absent(c.Key(next)):
		return nil, nil
	case far.Off():
		return nil, &LoadError{Place: far.Place, Err: tier.ErrOff}
	}
	r := &RemoteScan{lookups: l, far: far, chain: c, mask: mask &^ l.levels.off(), begin: next}
	r.found.Store(int64(next))
	return r, nil
}

// Find asks until the end of the prefix is certain or ctx ends. The index has
// each finding at once.
func (r *RemoteScan) Find(ctx context.Context) {
	defer r.end()
	for at := r.begin; at < r.chain.Len() && !r.far.Shared.Absent(r.chain.Key(at)); {
		ks := make([]key.Key, 0, r.chain.Len()-at)
		for i := at; i < r.chain.Len(); i++ {
			ks = append(ks, r.chain.Key(i))
		}
		from := at
		n, err := r.far.Shared.Find(ctx, ks, func(n int) { r.add(from, from+n) })
		if err != nil {
			r.lookups.log.Debug().Err(err).Stringer("tier", r.far.Place).Msg("a shared tier does not say what it has")
			r.fail(err)
			return
		}
		if n == 0 {
			return
		}
		r.add(from, from+n)
		// Behind what the far tier has, a near one may go on.
		at = r.advance(from + n)
		if at == from+n {
			return
		}
	}
}

// add notes in the index that chunks from..to are there.
func (r *RemoteScan) add(from, to int) {
	r.lookups.index.add(r.chain, from, to, r.far.Place)
	r.reach(to)
}

// advance returns how far the chain is known from at on.
func (r *RemoteScan) advance(at int) int {
	sc := borrow(r.chain.Len())
	defer sc.give()
	known := r.lookups.locate(r.chain, 0, sc.at)
	for at < known && tier.Set(sc.at[at])&r.mask != 0 {
		at++
	}
	r.reach(at)
	return at
}

// reach tells who waits that the first n chunks are there.
func (r *RemoteScan) reach(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if int64(n) > r.found.Load() {
		r.found.Store(int64(n))
		r.mu.moved.Wake()
	}
}

func (r *RemoteScan) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.err = &LoadError{Place: r.far.Place, Err: err}
}

// Err is why the tier did not say whether the prefix goes on, where Reach has
// reported that it does not; nil if it is certain.
func (r *RemoteScan) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.err
}

func (r *RemoteScan) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.done = true
	r.mu.moved.Wake()
}

// Reach waits until it is certain whether chunk i belongs to the prefix, and
// reports that; false too if ctx ends first.
func (r *RemoteScan) Reach(ctx context.Context, i int) bool {
	for {
		if int64(i) < r.found.Load() {
			return true
		}
		moved := r.progress(i)
		if moved == nil {
			return int64(i) < r.found.Load()
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return false
		}
	}
}

// progress returns a channel that is closed when more is known; nil if it is certain
// whether chunk i belongs to the prefix.
func (r *RemoteScan) progress(i int) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.done || int64(i) < r.found.Load() {
		return nil
	}
	return r.mu.moved.Next()
}

// Found is how many chunks of the chain are known now, its Skip included.
func (r *RemoteScan) Found() int { return int(r.found.Load()) }
