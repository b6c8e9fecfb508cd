package remote

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/cpu"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/test/s3test"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/prefetch"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// host is a machine with DRAM and the remote tier, put together as the daemon
// does it. When its test ends nothing may be held, and no block may be in use
// but those of cached chunks.
type host struct {
	*store.Store
	t     *testing.T
	far   *Tier
	owner ledger.Owner
}

func newHost(t *testing.T, o Options, b tier.BreakerOptions) *host {
	t.Helper()
	const capacity = 16 * mib
	a, err := arena.New(arena.Options{CapacityBytes: capacity})
	if err != nil {
		t.Fatal(err)
	}
	lru, err := policy.New("lru", capacity)
	if err != nil {
		t.Fatal(err)
	}
	l := ledger.New(ledger.Options{CapacityBytes: capacity, Policy: lru})
	hot := cpu.New(cpu.Options{Arena: a, Ledger: l, HighWatermark: 0.95, LowWatermark: 0.90})
	h := &host{t: t, far: connect(t, o)}
	h.Store = store.New(store.Options{
		Hot: hot, Log: zerolog.Nop(),
		Below: []store.Below{{
			Place: tier.Remote, Tier: tier.WithBreaker(h.far, b),
			Loads: tier.Limit{Loads: h.far.o.Concurrency, Bytes: h.far.o.FlightBytes},
		}},
	})
	h.owner = h.Leases.NewOwner()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- h.Run(ctx) }()
	t.Cleanup(func() {
		h.Leases.CloseOwner(h.owner)
		h.Loader.Wait()
		stop()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
		st := l.Stats()
		if n := a.Stats().Blocks; st.ProtectedBytes != 0 || int(n) != st.Entries {
			t.Errorf("%d bytes are held, and %d blocks for %d chunks", st.ProtectedBytes, n, st.Entries)
		}
		if _, err := h.Remover.Delete(context.Background(), nil); err != nil {
			t.Error(err)
		}
		if err := hot.Close(); err != nil {
			t.Error(err)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// put stores chunks from..to of c and writes them to the bucket.
func (h *host) put(c *key.Chain, from, to, n int) {
	h.t.Helper()
	sizes, grants := make([]uint32, to-from), make([]store.Grant, to-from)
	for i := range sizes {
		sizes[i] = uint32(n)
	}
	if _, err := h.Filler.Reserve(h.t.Context(), store.Reservation{Owner: h.owner}, c, from, sizes, grants); err != nil {
		h.t.Fatal(err)
	}
	var refs []tier.Ref
	for i, g := range grants {
		g.Ref.Block.Write(tiertest.Payload(c.Key(from+i), n))
		g.Ref.Block.Seal()
		refs = append(refs, g.Ref)
	}
	h.Filler.Commit(c, from, refs, 0, make([]bool, len(refs)))
	if err := h.Writers.Flush(h.t.Context(), false); err != nil {
		h.t.Fatal(err)
	}
}

// lookup is one prefetch of a chain and its results.
type lookup struct {
	ready []time.Duration // when each chunk of the prefix was, since the start
	took  time.Duration   // until the answer
	err   error           // why it is short
}

// prefetch promotes the stored prefix of c, as the server does it, checks its
// bytes and gives it back. The answer is there at the deadline; prefetch
// returns when the loads under way have ended too.
func (h *host) prefetch(c *key.Chain, deadline time.Duration) (l lookup) {
	h.t.Helper()
	m, err := h.Lookups.Match(h.t.Context(), c, tier.All)
	if err != nil {
		h.t.Fatal(err)
	}
	if m.Hot > 0 {
		h.t.Fatal("something is in DRAM already")
	}
	to := c.Skip + m.Chunks
	rest, _ := h.Lookups.ScanRemote(c, to, tier.All) // none where the tier is off
	src := &source{host: h, chain: c, rest: rest}
	if src.rest != nil {
		to = c.Len()
	}
	start := time.Now()
	var mu sync.Mutex
	var j *prefetch.Job[tier.Ref]
	note := func() {
		mu.Lock()
		defer mu.Unlock()
		st := j.State()
		for len(l.ready) < st.Ready {
			l.ready = append(l.ready, time.Since(start))
		}
		if st.Done && l.took == 0 {
			l.took, l.err = time.Since(start), st.Err
		}
	}
	j = prefetch.New(prefetch.Options[tier.Ref]{
		From: c.Skip, To: to, Window: 256 * mib, ChunkBytes: 64 * mib, Deadline: start.Add(deadline), Changed: note,
		Discard: func(r tier.Ref) { h.Leases.Release(h.owner, ledger.Lease, []tier.Ref{r}) },
	}, src)
	ctx, stop := context.WithCancel(h.t.Context())
	var finding sync.WaitGroup
	if src.rest != nil {
		finding.Go(func() { src.rest.Find(ctx) })
	}
	j.Run(h.t.Context())
	stop()
	finding.Wait()
	note()
	for i, r := range j.Ready(0, nil) {
		if err := tiertest.CheckPayload(c.Key(c.Skip+i), r.Block.Bytes()); err != nil {
			h.t.Errorf("chunk %d: %v", i, err)
		}
		h.Leases.Release(h.owner, ledger.Lease, []tier.Ref{r})
	}
	return l
}

// all promotes the chunks of c that are not in DRAM and returns how many are
// stored.
func (h *host) all(c *key.Chain) int {
	h.t.Helper()
	m, err := h.Lookups.Match(h.t.Context(), c, tier.All)
	if err != nil {
		h.t.Fatal(err)
	}
	rest := *c
	rest.Skip = m.Hot
	return m.Hot + len(h.prefetch(&rest, time.Minute).ready)
}

// source is what a prefetch loads from, as in the server.
type source struct {
	*host
	chain *key.Chain
	rest  *store.RemoteScan
}

// Load implements prefetch.Source.
func (s *source) Load(ctx context.Context, i int) (tier.Ref, int64, error) {
	if s.rest != nil && !s.rest.Reach(ctx, i) {
		return tier.Ref{}, 0, prefetch.ErrEnd
	}
	ref, _, err := s.host.Loader.Load(ctx, store.Requester{Owner: s.owner, Job: 1}, s.chain, i, tier.All)
	if err != nil {
		return tier.Ref{}, 0, err
	}
	return ref, int64(ref.Block.Len()), nil
}

// run has a tier run until the test ends, after which no object with which it has tried
// the store is left.
func run(t *testing.T, o Options, s *s3test.Memory) *Tier {
	t.Helper()
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() {
		s.Set(nil)
		stop()
		<-ended
		_ = r.Close()
		if h, b := s.Object(r.canaryName()); len(h)+len(b) > 0 {
			t.Error("an object is left with which the store was tried")
		}
	})
	time.Sleep(time.Second)
	return r
}

// pass lets time go by, in a bubble.
func pass(d time.Duration) { time.Sleep(d) }
