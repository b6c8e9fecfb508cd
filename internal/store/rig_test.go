package store_test

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/cpu"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/writeback"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

const (
	kib = 1 << 10
	mib = 1 << 20

	size = 64 * kib // of most payloads
)

// options say what a rig is made of; the zero value is a small store that
// writes through to a roomy disk.
type options struct {
	capacity int64 // of DRAM; 0 = 4 MiB
	entries  int   // of DRAM at most; 0 = as many as come
	limits   ledger.Limits
	mode     writeback.When
	workers  int // that write to a tier; 0: as usual
	verify   int
	perDay   int64            // written to the disk
	disk     *tiertest.Memory // nil: a new one of 64 MiB
	planner  tier.Tier        // the same disk, with a policy that plans, or quotas
	hook     tierfault.Hook   // in front of the disk
	quotas   []store.Quota
	breaker  *tier.BreakerOptions
	remote   tier.Tier
	more     []store.Below // behind these
	lone     bool          // DRAM only
	idle     bool          // the store does not run
	scanning bool          // the test begins before the disk is known
	loads    [tier.Places]tier.Limit
	hot      func(tier.Hot) tier.Hot // in front of DRAM; nil: nothing
	policy   string                  // of DRAM; "" = lru
	loaded   func(tier.Place, time.Duration)
	log      index.LogOptions // the zero value keeps all changes
}

const (
	through = writeback.AtCommit
	held    = writeback.AtEviction
	auto    = writeback.WhileRoom
)

var modes = map[string]writeback.When{"through": through, "held": held, "auto": auto}

// rig is a Store over a DRAM tier and tiers in plain memory. When its test
// ends it must be at rest: nothing held, no block without an entry, and the
// index true.
type rig struct {
	*store.Store
	t     *testing.T
	arena *arena.Arena
	hot   *cpu.Tier
	disk  *tiertest.Memory
	below tier.Tier // disk as the store sees it
	more  []store.Below
	log   *index.Log
	end   func()

	mu   sync.Mutex
	seen map[key.Key]bool
}

func newRig(t *testing.T, o options) *rig {
	t.Helper()
	capacity := cmp.Or(o.capacity, 4*mib)
	a, err := arena.New(arena.Options{CapacityBytes: capacity})
	if err != nil {
		t.Fatal(err)
	}
	lru, err := policy.New(cmp.Or(o.policy, "lru"), capacity)
	if err != nil {
		t.Fatal(err)
	}
	l := ledger.New(ledger.Options{CapacityBytes: capacity, Policy: lru, PolicyName: o.policy, Limits: o.limits, Entries: o.entries})
	r := &rig{t: t, arena: a, more: o.more, seen: make(map[key.Key]bool), end: func() {}}
	if o.log == (index.LogOptions{}) {
		o.log = index.LogOptions{Batches: 1 << 30, Changes: 1 << 30}
	}
	r.log = index.NewLog(1, o.log)
	r.hot = cpu.New(cpu.Options{Arena: a, Ledger: l, HighWatermark: 0.95, LowWatermark: 0.90})
	so := store.Options{Hot: r.hot, When: o.mode, Workers: o.workers, Settings: store.Settings{VerifyHits: o.verify, DiskBytesPerDay: o.perDay}, Quotas: o.quotas, Events: r.log, Loaded: o.loaded, Log: zerolog.Nop()}
	if o.hot != nil {
		so.Hot = o.hot(r.hot)
	}
	if !o.lone {
		r.disk = o.disk
		if r.disk == nil {
			r.disk = tiertest.NewMemory("disk", 64*mib)
		}
		r.below = r.disk
		if o.planner != nil {
			r.below = o.planner
		}
		if o.hook != nil {
			r.below = tierfault.Wrap(r.below, o.hook)
		}
		if o.breaker != nil {
			r.below = tier.WithBreaker(r.below, *o.breaker)
		}
		so.Below = append(so.Below, store.Below{Place: tier.Disk, Tier: r.below, Loads: o.loads[tier.Disk]})
	}
	if o.remote != nil {
		so.Below = append(so.Below, store.Below{Place: tier.Remote, Tier: o.remote, Loads: o.loads[tier.Remote]})
	}
	so.Below = append(so.Below, o.more...)
	r.Store = store.New(so)
	if !o.idle {
		r.start()
	}
	for !o.idle && !o.scanning && !o.lone && !(r.Scanned() && r.Recovery.Ready()) {
		runtime.Gosched() // the tier in memory takes no time
	}
	t.Cleanup(r.stop)
	return r
}

// start runs the store until stop.
func (r *rig) start() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()
	r.end = func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Errorf("run: %v", err)
		}
	}
}

// stop ends the store and checks that it is at rest.
func (r *rig) stop() {
	r.end()
	if r.t.Failed() {
		return
	}
	r.checkIndex()
	if r.log.Oldest() == 0 {
		r.checkEvents()
	}
	r.checkRest()
	var ks []key.Key
	for k := range r.seen {
		ks = append(ks, k)
	}
	if err := r.hot.Delete(context.Background(), ks); err != nil {
		r.t.Error(err)
	}
	if err := r.arena.Close(); err != nil {
		r.t.Error(err)
	}
}

// checkRest checks that nothing is held and that every block is an entry's.
func (r *rig) checkRest() {
	r.t.Helper()
	l, a := r.hot.Ledger().Stats(), r.arena.Stats()
	if l.ProtectedBytes != 0 || l.Filling != 0 || l.LeavingBytes != 0 {
		r.t.Errorf("something is still held: %+v", l)
	}
	if a.Blocks != int64(l.Entries) || a.UsedBytes != l.UsedBytes {
		r.t.Errorf("%d blocks with %d bytes for %d entries with %d bytes", a.Blocks, a.UsedBytes, l.Entries, l.UsedBytes)
	}
}

// checkIndex compares the index with what the tiers hold.
func (r *rig) checkIndex() {
	r.t.Helper()
	known := 0
	for k := range r.seen {
		var want tier.Set
		if r.hot.Has(k) {
			want |= tier.Of(tier.CPU)
		}
		if r.disk != nil && r.disk.Has(k) {
			want |= tier.Of(tier.Disk)
		}
		for _, b := range r.more {
			if res := tier.RolesOf(b.Tier).Resident; res != nil && res.Has(k) {
				want |= tier.Of(b.Place)
			}
		}
		if e, st := r.hot.Ledger().Find(k); st == ledger.Resident && tier.Set(e.Below) != r.Where(k)&^tier.Of(tier.CPU) {
			r.t.Errorf("%s: DRAM was told that %b have it, the index says %b", k, e.Below, r.Where(k))
		}
		got := r.Where(k) &^ tier.Of(tier.Remote)
		if got != want {
			r.t.Errorf("%s: the index says %b, the tiers %b", k, got, want)
		}
		if r.Where(k) != 0 {
			known++
		}
	}
	if n := r.Store.Operator.Stats().Chunks; n != int64(known) {
		r.t.Errorf("the index counts %d chunks; %d are there", n, known)
	}
}

func (r *rig) see(c *key.Chain) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range c.Len() {
		r.seen[c.Key(i)] = true
	}
}

func repeat(n, times int) []uint32 { return slices.Repeat([]uint32{uint32(n)}, times) }

// reserve asks for chunks from..to of c with n bytes each.
func (r *rig) reserve(o ledger.Owner, c *key.Chain, from, to, n int) ([]store.Grant, error) {
	r.see(c)
	grants := make([]store.Grant, to-from)
	got, err := r.Filler.Reserve(context.Background(), store.Reservation{Owner: o}, c, from, repeat(n, to-from), grants)
	return grants[:got], err
}

// fill writes and seals granted chunks, the first of which is chunk from.
func fill(c *key.Chain, from int, grants []store.Grant) []tier.Ref {
	var refs []tier.Ref
	for i, g := range grants {
		tiertest.Fill(g.Ref.Block.Bytes(), c.Key(from+i))
		g.Ref.Block.Seal()
		refs = append(refs, g.Ref)
	}
	return refs
}

// put stores chunks from..to of c with n bytes each; all must be new.
func (r *rig) put(c *key.Chain, from, to, n int) {
	r.t.Helper()
	grants, err := r.reserve(ledger.Daemon, c, from, to, n)
	if err != nil {
		r.t.Fatalf("reserve: %v", err)
	}
	for i, g := range grants {
		if g.Status != store.Granted {
			r.t.Fatalf("chunk %d is not granted: %d", from+i, g.Status)
		}
	}
	commit(r.Store, c, from, fill(c, from, grants))
}

// putChain stores a new chain of n chunks.
func (r *rig) putChain(seed uint64, n int) *key.Chain {
	r.t.Helper()
	c := tiertest.Chain(seed, n)
	r.put(c, 0, n, size)
	return c
}

// flush writes everything below.
func (r *rig) flush() {
	r.t.Helper()
	if err := r.Writers.Flush(context.Background(), false); err != nil {
		r.t.Fatalf("flush: %v", err)
	}
}

// evict throws all chunks that it can out of DRAM, as a put that needs all room would.
func (r *rig) evict() {
	r.t.Helper()
	huge := tiertest.Chain(1<<40, 1)
	grants, err := r.reserve(ledger.Daemon, huge, 0, 1, int(r.arena.Stats().CapacityBytes))
	if err != nil || grants[0].Status != store.Granted {
		return // what is on its way down takes its time; or others are at it
	}
	r.Filler.Abort([]tier.Ref{grants[0].Ref})
}

// match is what a lookup of c finds.
func (r *rig) match(c *key.Chain) store.Match {
	r.t.Helper()
	m, err := r.Lookups.Match(context.Background(), c, tier.All)
	if err != nil {
		r.t.Fatalf("match: %v", err)
	}
	return m
}

// wantIn checks in which tiers a lookup of c finds how many chunks.
func (r *rig) wantIn(c *key.Chain, inCPU, inDisk int) {
	r.t.Helper()
	m := r.match(c)
	if m.In[tier.CPU].Chunks != inCPU || m.In[tier.Disk].Chunks != inDisk {
		r.t.Errorf("found %d chunks in DRAM and %d on disk; want %d and %d", m.In[tier.CPU].Chunks, m.In[tier.Disk].Chunks, inCPU, inDisk)
	}
}

// load brings chunk i of c up and checks its bytes.
func (r *rig) load(c *key.Chain, i int) error {
	return r.loadAs(r.t.Context(), ledger.Daemon, c, i)
}

func (r *rig) loadAs(ctx context.Context, o ledger.Owner, c *key.Chain, i int) error {
	ref, _, err := r.Loader.Load(ctx, store.Requester{Owner: o}, c, i, tier.All)
	if err != nil {
		return err
	}
	defer r.Leases.Release(o, ledger.Lease, []tier.Ref{ref})
	return tiertest.CheckPayload(c.Key(i), ref.Block.Bytes())
}

// commit makes filled chunks visible, of any age.
func commit(s *store.Store, c *key.Chain, from int, refs []tier.Ref) {
	s.Filler.Commit(c, from, refs, 0, make([]bool, len(refs)))
}
