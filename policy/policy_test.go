package policy_test

import (
	"flag"
	"runtime"
	"slices"
	"testing"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/policy/policytest"
)

var (
	seeds = flag.Uint64("policy.seeds", 1, "random histories of TestConformance, for each policy, and of TestPlanners")
	ops   = flag.Int("policy.ops", 60_000, "operations of each history of TestConformance, a sixth of them for policies that plan")
	asks  = flag.Int("policy.asks", 1000, "operations of each history of TestPlanners")
)

func TestConformance(t *testing.T) {
	for _, name := range policy.Names() {
		t.Run(name, func(t *testing.T) { policytest.Run(t, name, *seeds, *ops) })
	}
	for _, name := range policy.Planners() { // their models are slow
		t.Run(name, func(t *testing.T) { policytest.Run(t, name, *seeds, *ops/6) })
	}
}

func TestNewRefusesUnknownNames(t *testing.T) {
	if p, err := policy.New("no-such-policy", 1); err == nil || p != nil {
		t.Errorf("New(lifo) = %v, %v", p, err)
	}
}

// order adds 0..5, touches 1, 1, 3, 0, and evicts all.
func order(t *testing.T, name string) (victims []policy.ID) {
	t.Helper()
	p := policytest.New(t, name, 6)
	for id := range policy.ID(6) {
		p.Miss(uint64(id), 1)
		p.Add(id, policy.Meta{Hash: uint64(id), Size: 1})
	}
	for _, id := range []policy.ID{1, 1, 3, 0} {
		p.Touch(id)
	}
	for {
		id, ok := p.Evict(func(policy.ID) bool { return true })
		if !ok {
			return victims
		}
		victims = append(victims, id)
	}
}

// The models could be wrong the same way as the policies; this is by hand.
func TestOrderByHand(t *testing.T) {
	for name, want := range map[string][]policy.ID{
		"lru":  {2, 4, 5, 1, 3, 0},
		"fifo": {0, 1, 2, 3, 4, 5},
		"mru":  {0, 3, 1, 5, 4, 2},
		"lfu":  {2, 4, 5, 3, 0, 1},
		// Used once: 2, 4, 5; then used again, by last use.
		"arc": {2, 4, 5, 1, 3, 0},
		// The small queue promotes 1, used twice more, and gives the others up.
		"s3fifo": {0, 2, 3, 4, 5, 1},
	} {
		if got := order(t, name); !slices.Equal(got, want) {
			t.Errorf("%s: victims %v, want %v", name, got, want)
		}
	}
}

// TestARCByHand leads to where the target is exactly what t1 holds; then a
// ghost of b2 takes from t1, and nothing else does.
func TestARCByHand(t *testing.T) {
	p := policytest.New(t, "arc", 4)
	add := func(id policy.ID) {
		p.Add(id, policy.Meta{Hash: uint64(id), Size: 1})
	}
	replace := func(id, victim policy.ID) {
		t.Helper()
		p.Miss(uint64(id), 1)
		if got, _ := p.Evict(func(policy.ID) bool { return true }); got != victim {
			t.Fatalf("%d replaces %d, want %d", id, got, victim)
		}
		add(id)
	}
	const a, b, c, d, e, f = 1, 2, 3, 4, 5, 6
	for _, id := range []policy.ID{a, b, c, d} {
		p.Miss(uint64(id), 1)
		add(id)
	}
	p.Touch(a)
	p.Touch(b)    // t1: c d, t2: a b, target 0
	replace(e, c) // t1: d e, b1: c
	replace(c, d) // target 1, t1: e, t2: a b c, b1: d
	replace(f, a) // t1 is not beyond 1: t1: e f, t2: b c, b2: a
	replace(d, b) // target 2: t2: c d, b2: a b
	p.Touch(e)    // t1: f, t2: c d e
	replace(a, f) // target 1, which t1 holds; from b2, so from t1
}

// Calls that an owner may not make are counted, and change nothing: with them and without
// them victims are the same.
func TestBrokenBooks(t *testing.T) {
	t.Cleanup(base.SurviveBroken())
	all := func(policy.ID) bool { return true }
	for _, name := range policy.All() {
		got, want := policytest.New(t, name, 8), policytest.New(t, name, 8)
		both := func(do func(policy.Policy)) { do(got); do(want) }
		wrong := func() {
			t.Helper()
			for _, id := range []policy.ID{0, 5, 1 << 30} { // gone, never there, and of no page
				calls, before := 3, base.BrokenCount()
				got.Touch(id)
				got.Remove(id)
				got.Allow(id)
				if p, ok := got.(policy.Renewer); ok {
					calls++
					p.Renew(id)
				}
				if p, ok := got.(policy.Leaver); ok {
					calls += 2
					if p.Leave(id); p.Proven(id) {
						t.Errorf("%s: %d is proven", name, id)
					}
				}
				if n := base.BrokenCount() - before; int(n) != calls {
					t.Errorf("%s: %d of %d calls that name %d are counted", name, n, calls, id)
				}
			}
			before := base.BrokenCount()
			got.Add(2, policy.Meta{Hash: 2, Size: 1})
			if n := base.BrokenCount() - before; n != 1 {
				t.Errorf("%s: an entry that is added twice is counted %d times", name, n)
			}
		}
		for id := range policy.ID(5) {
			both(func(p policy.Policy) { p.Add(id, policy.Meta{Hash: uint64(id), Size: 1}) })
		}
		both(func(p policy.Policy) { p.Remove(0) })
		wrong()
		both(func(p policy.Policy) { p.Touch(3); p.Evict(func(id policy.ID) bool { return id == 4 }) })
		both(func(p policy.Policy) { p.Add(4, policy.Meta{Hash: 4, Size: 1}) })
		wrong()
		for {
			a, some := got.Evict(all)
			b, more := want.Evict(all)
			if a != b || some != more {
				t.Fatalf("%s: the victim is %d (%t), want %d (%t)", name, a, some, b, more)
			}
			if !more {
				break
			}
		}
	}
}

func TestHotPathsDoNotAllocate(t *testing.T) {
	for _, name := range append(policy.Names(), policy.Planners()...) {
		p := policytest.New(t, name, 1024)
		for id := range policy.ID(1024) {
			p.Add(id, policy.Meta{Hash: uint64(id), Size: 1})
		}
		refuse := func(id policy.ID) bool { return id%2 == 0 }
		id := policy.ID(0)
		got := testing.AllocsPerRun(1000, func() {
			id = (id + 2) % 1024
			p.Touch(id)
			p.Touch(id + 1)
			p.Allow(id + 1)
			victim, _ := p.Evict(refuse)
			p.Add(victim, policy.Meta{Hash: uint64(victim), Size: 1})
		})
		if got > 0.1 { // a page now and then
			t.Errorf("%s: %v allocations an operation", name, got)
		}
	}
}

func FuzzPolicies(f *testing.F) {
	f.Add([]byte{0, 1, 0, 2, 10, 1, 14, 0, 12, 1, 14, 0})
	f.Add([]byte("add, lock, touch, unlock, evict, in any order at all"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, name := range policy.Names() {
			policytest.Differ(t, name, 1, policytest.Bytes(data))
			policytest.Differ(t, name, 5, policytest.Bytes(data))
		}
	})
}

func BenchmarkEvictPastRefused(b *testing.B) {
	for _, name := range policy.Names() {
		for _, refused := range []policy.ID{1e3, 1e4, 1e5} {
			b.Run(name+"/"+map[policy.ID]string{1e3: "1e3", 1e4: "1e4", 1e5: "1e5"}[refused], func(b *testing.B) {
				p := policytest.New(b, name, 1<<20)
				for id := range refused + 1 {
					p.Add(id, policy.Meta{Hash: uint64(id), Size: 1})
				}
				ok := func(id policy.ID) bool { return id == refused }
				for b.Loop() {
					id, _ := p.Evict(ok)
					p.Add(id, policy.Meta{Hash: uint64(id), Size: 1})
				}
			})
		}
	}
}

// BenchmarkBytes reports the bytes an entry of a policy that is full, was turned over, and has
// all its ghosts.
func BenchmarkBytes(b *testing.B) {
	const n = 1 << 16
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for _, name := range policy.Names() {
		b.Run(name, func(b *testing.B) {
			hashes := make([]uint64, n) // by ID
			each := 0.0
			for b.Loop() {
				before := heap()
				p, err := policy.New(name, n)
				if err != nil {
					b.Fatal(err)
				}
				if p, ok := p.(policy.MetaReader); ok {
					p.ReadMetaFrom(func(id policy.ID) policy.Meta { return policy.Meta{Hash: hashes[id], Size: 1} })
				}
				for hash := range uint64(3 * n) {
					id := policy.ID(hash)
					p.Miss(hash, 1)
					if hash >= n {
						id, _ = p.Evict(func(policy.ID) bool { return true })
					}
					hashes[id] = hash
					p.Add(id, policy.Meta{Hash: hash, Size: 1})
					if hash%2 == 0 {
						p.Touch(id) // arc has ghosts where some are used again
					}
				}
				each = float64(heap()-before) / n
				runtime.KeepAlive(p)
			}
			b.ReportMetric(each, "bytes/entry")
		})
	}
}

func BenchmarkTouch(b *testing.B) {
	for _, name := range policy.Names() {
		b.Run(name, func(b *testing.B) {
			const n = 1 << 20
			p := policytest.New(b, name, n)
			for id := range policy.ID(n) {
				p.Add(id, policy.Meta{Hash: uint64(id), Size: 1})
			}
			id := policy.ID(0)
			for b.Loop() {
				id = (id*1664525 + 1013904223) % n // visits all, out of order
				p.Touch(id)
			}
		})
	}
}

// TestPlanners: over trees, with requests announced, a planner does what its
// model does.
func TestPlanners(t *testing.T) {
	all := make(map[string]int)
	for seed := range *seeds {
		for what, n := range policytest.Plan(t, "tenure", policytest.Seeded(seed, *asks)) {
			all[what] += n
		}
	}
	if all["turned"] < 4 {
		t.Error("the tables were believed, or not, all the time")
	}
	if all["refused"] == 0 || all["worth"] == 0 {
		t.Errorf("all was worth storing, or nothing: %v", all)
	}
	if all["beside"] == 0 {
		t.Error("no prompt needed more than its chain")
	}
	if all["guarded"] == 0 {
		t.Error("nothing was asked under guard")
	}
}

func FuzzPlanners(f *testing.F) {
	f.Add([]byte("ask for prompts, lock, unlock, remove, evict, in any order"))
	f.Fuzz(func(t *testing.T, data []byte) { policytest.Plan(t, "tenure", policytest.Bytes(data)) })
}
