package store_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/writeback"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// picky is a disk whose policy plans: it wants the chunks that a test names.
type picky struct {
	*tiertest.Memory

	mu        sync.Mutex
	wants     map[key.Hash]bool
	asked     []ledger.Request
	trainings atomic.Int64
	careless  atomic.Bool // its policy does not plan at present
}

func newPicky() *picky {
	return &picky{Memory: tiertest.NewMemory("disk", 64*mib), wants: make(map[key.Hash]bool)}
}

// want makes it want, or not want, chunks from..to of c.
func (p *picky) want(is bool, c *key.Chain, from, to int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range c.Hashes[from:to] {
		p.wants[h] = is
	}
}

func (p *picky) Plans() bool { return !p.careless.Load() }

func (p *picky) Observe(r *ledger.Request) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := *r
	q.Hashes = slices.Clone(r.Hashes)
	p.asked = append(p.asked, q)
	return true
}

func (p *picky) Admit(_ key.SpaceID, _ key.Hash, hs []key.Hash, _ uint32, _ bool) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, h := range hs {
		if !p.wants[h] {
			return i
		}
	}
	return len(hs)
}

func (p *picky) Train() {
	p.trainings.Add(1)
}

func (p *picky) MarkCold(key.SpaceID, []key.Hash) {}

// newPlanned is a rig over a picky disk, whose DRAM is full of a chain that its
// policy knows to be used often.
func newPlanned(t *testing.T, o options) (*rig, *picky) {
	t.Helper()
	p := newPicky()
	o.disk, o.planner = p.Memory, p
	return newLearned(t, o), p
}

// newLearned is a rig whose DRAM learns.
func newLearned(t *testing.T, o options) *rig {
	t.Helper()
	r := newRig(t, o)
	if err := r.Operator.SetPolicy(tier.CPU, "tenure"); err != nil {
		t.Fatal(err)
	}
	return r
}

// longChunk is the tokens in a chunk of which few make a cache that is not small.
const longChunk = 1024

func longChunks(n uint64, chunks int) *key.Chain {
	c := tiertest.Chain(n, chunks)
	for i := range c.Tokens {
		c.Tokens[i] = longChunk
	}
	return c
}

// TestOnlyWhatIsWanted: a chunk that no tier wants is refused, and with it the
// rest of the prompt; the client is told beforehand.
func TestOnlyWhatIsWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, p := newPlanned(t, options{})
		// DRAM is full of chunks that were asked for twice at once: the best there
		// is.
		old, c := longChunks(1, 60), longChunks(2, 6) // so long that DRAM is no small cache
		p.want(true, old, 0, 60)
		for range 6 {
			r.Planning.Observe(old, store.Prompt{})
		}
		r.put(old, 0, 60, size)
		synctest.Wait()

		r.see(c)
		p.want(true, c, 0, 4)
		r.Planning.Observe(c, store.Prompt{Hint: policy.Continues})
		if n := len(p.asked); n != 7 || p.asked[6].Tokens != 6*longChunk || p.asked[6].Hint != policy.Continues ||
			!slices.Equal(p.asked[6].Hashes, c.Hashes) {
			t.Fatalf("%d requests were announced, the last as %+v", n, p.asked[n-1])
		}
		if worth := r.Planning.Admit(c, 0, c.Len(), size); worth != 4 {
			t.Errorf("%d chunks are worth storing, want the 4 that the disk wants", worth)
		}
		grants, err := r.reserve(ledger.Daemon, c, 0, 6, size)
		if len(grants) != 4 || !errors.Is(err, store.ErrNotAdmitted) || !errors.Is(err, tier.ErrNoSpace) {
			t.Fatalf("%d chunks were granted, error %v; want 4 and one that says why", len(grants), err)
		}
		commit(r.Store, c, 0, fill(c, 0, grants))
		synctest.Wait()
		if p.trainings.Load() == 0 {
			t.Error("the disk's policy never learned")
		}

		p.careless.Store(true) // and so takes everything
		if worth := r.Planning.Admit(c, 4, c.Len(), size); worth != 2 {
			t.Errorf("%d of 2 chunks are worth storing where the disk takes everything", worth)
		}
	})
}

// TestDiskDecidesForItself: what the disk does not want is not written, nor
// what hangs on it, until it is used again and wanted then. What a client
// insists on is.
func TestDiskDecidesForItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, p := newPlanned(t, options{})
		c := tiertest.Chain(1, 8)
		p.want(true, c, 0, 8)
		p.want(false, c, 3, 4)
		r.put(c, 0, 8, size)
		synctest.Wait()
		r.wantWritten(3, map[explain.Decline]uint64{explain.NotWorth: 5})

		p.want(true, c, 3, 4)
		refs := make([]tier.Ref, 8)
		if n, err := r.Leases.Hold(ledger.Daemon, ledger.Lease, c, 0, 8, refs); n != 8 || err != nil {
			t.Fatal(n, err)
		}
		r.Leases.Release(ledger.Daemon, ledger.Lease, refs)
		synctest.Wait()
		r.wantWritten(8, map[explain.Decline]uint64{explain.NotWorth: 5})

		own := tiertest.Chain(2, 2) // nobody wants it
		r.see(own)
		grants := make([]store.Grant, 2)
		want := store.Reservation{Owner: ledger.Daemon, Force: true}
		if n, err := r.Filler.Reserve(t.Context(), want, own, 0, repeat(size, 2), grants); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		commit(r.Store, own, 0, fill(own, 0, grants))
		synctest.Wait()
		r.wantWritten(10, map[explain.Decline]uint64{explain.NotWorth: 5})
		r.wantOnDisk(own, 1)
	})
}

// TestNotWorthIsWhy: a chunk that the disk did not want, and that DRAM has evicted, is
// missing for that.
func TestNotWorthIsWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, p := newPlanned(t, options{})
		c := tiertest.Chain(1, 2)
		p.want(true, c, 0, 1)
		r.put(c, 0, 2, size)
		synctest.Wait()
		r.evict()
		synctest.Wait()
		if a := r.Lookups.Why(c, 1, tier.All); a.Name() != "declined_not_worth" || a.Tier != uint8(tier.Disk) {
			t.Errorf("it is missing as %+v", a)
		}
		if a := r.Lookups.Why(c, 0, tier.All); a.Reason != explain.Nothing {
			t.Errorf("what the disk wanted is missing as %+v", a)
		}
	})
}

// TestFlushIsForced: a flush writes what the disk does not want, now and before. The
// flush at the end leaves that, and nothing is missed of it; it asks once more.
func TestFlushIsForced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, p := newPlanned(t, options{})
		c := tiertest.Chain(1, 8)
		p.want(true, c, 0, 3)
		r.put(c, 0, 8, size)
		synctest.Wait()
		r.wantWritten(3, map[explain.Decline]uint64{explain.NotWorth: 5})
		if left := r.Writers.FlushLast(t.Context()); len(left) > 0 {
			t.Errorf("a daemon that ends leaves %+v", left)
		}
		r.wantWritten(3, map[explain.Decline]uint64{explain.NotWorth: 5})
		p.want(true, c, 3, 4)
		if left := r.Writers.FlushLast(t.Context()); len(left) > 0 {
			t.Errorf("a daemon that ends leaves %+v", left)
		}
		r.wantWritten(4, map[explain.Decline]uint64{explain.NotWorth: 5})
		r.flush()
		r.wantWritten(8, map[explain.Decline]uint64{explain.NotWorth: 5})
		for i := range 8 {
			r.wantOnDisk(c, i)
		}
		if reason, v := r.Writers.Unflushed(writeback.Volume{}); v.Chunks != 0 {
			t.Errorf("%d chunks are in DRAM only: %s", v.Chunks, reason)
		}
		own := r.putChain(2, 2) // written by the flush that begins at once
		r.flush()
		r.wantOnDisk(own, 1)
	})
}

// TestHeldWants: victims come tail first, and still go down.
func TestHeldWants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, p := newPlanned(t, options{mode: held})
		c := tiertest.Chain(1, 8)
		p.want(true, c, 0, 8)
		r.put(c, 0, 8, size)
		r.evict()
		synctest.Wait()
		r.wantWritten(8, nil)
	})
}

// slowPicky is picky, and its first put, or each, waits for the gate.
type slowPicky struct {
	*picky
	gate chan struct{}
	all  bool
	n    atomic.Int64
}

func (s *slowPicky) Put(ctx context.Context, e tier.Entry) error {
	if s.n.Add(1) == 1 || s.all {
		<-s.gate
	}
	return s.picky.Put(ctx, e)
}

func newSlow(t *testing.T, o options) (*rig, *slowPicky) {
	t.Helper()
	p := &slowPicky{picky: newPicky(), gate: make(chan struct{})}
	o.disk, o.planner = p.picky.Memory, p
	return newLearned(t, o), p
}

// TestUnwantedIsDeleted: a victim that the disk does not want is not passed on
// once it was deleted.
func TestUnwantedIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := tiertest.NewMemory("remote", 64*mib)
		r, p := newSlow(t, options{
			mode: held, workers: 1,
			remote: struct{ tier.Tier }{far},
		})
		a, b := tiertest.Chain(1, 1), tiertest.Chain(2, 1)
		p.want(true, a, 0, 1) // b is not wanted
		r.put(a, 0, 1, size)
		r.evict()
		synctest.Wait()
		r.put(b, 0, 1, size)
		r.evict()
		synctest.Wait()
		if _, err := r.Remover.Delete(t.Context(), []key.Key{b.Key(0)}); err != nil {
			t.Fatal(err)
		}
		close(p.gate)
		synctest.Wait()
		if far.Has(b.Key(0)) || r.match(b).Chunks > 0 {
			t.Errorf("deleted chunk is back: remote %v, match %d", far.Has(b.Key(0)), r.match(b).Chunks)
		}
	})
}

// TestUsedWhileItWaits: a chunk that waits to be written is not taken up again at
// each use, and an unwanted one counts once.
func TestUsedWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, p := newSlow(t, options{
			workers: 1,
		})
		p.all = true
		c := tiertest.Chain(1, 20)
		p.want(true, c, 0, 18)
		r.put(c, 0, 20, size)
		synctest.Wait()
		use := func() {
			refs := make([]tier.Ref, 20)
			n, err := r.Leases.Hold(ledger.Daemon, ledger.Lease, c, 0, 20, refs)
			if n != 20 || err != nil {
				t.Fatal(n, err)
			}
			r.Leases.Release(ledger.Daemon, ledger.Lease, refs)
		}
		for range 10 {
			use()
		}
		synctest.Wait()
		if n := r.Writers.Written()[tier.Disk].Waiting; n > 20 {
			t.Errorf("%d of 20 chunks wait", n)
		}
		close(p.gate)
		synctest.Wait()
		for range 3 {
			use()
			synctest.Wait()
		}
		r.wantWritten(18, map[explain.Decline]uint64{explain.NotWorth: 2})
	})
}
