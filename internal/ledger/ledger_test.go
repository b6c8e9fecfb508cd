package ledger_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
)

var (
	long  = flag.Int("ledger.ops", 1000, "operations of TestModel, per policy and seed")
	seeds = flag.Int("ledger.seeds", 3, "histories of TestModel, per policy; many short ones find more than a long one, of which the model soon knows no order")
)

// rig drives a ledger and its model with the same calls.
type rig struct {
	t      testing.TB
	name   string          // of the policy
	source func(n int) int // one of n; negative when it is all over
	real   *ledger.Ledger
	model  *model
	owners []ledger.Owner
	held   []held // what must be given back
	evicts uint64
	unused uint64 // of evicts
}

type held struct {
	holder
	e *body
}

const page = 4096

// Either the classes are tight or the total is, or one entry may be larger than its class.
var tempers = []ledger.Limits{
	{Lease: 20 * page, Pin: 10 * page, Load: 10 * page, Unwritten: 8 * page, Total: 36 * page},
	{Lease: 40 * page, Pin: 40 * page, Unwritten: 40 * page, Total: 20 * page},
	{Lease: 20 * page, Pin: 10 * page, Load: page, Unwritten: 2 * page, Total: 24 * page},
}

func newRig(t testing.TB, name string, source func(int) int) *rig {
	t.Helper()
	p, err := policy.New(name, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	limits := tempers[max(0, source(len(tempers)))]
	most := []int{0, 24}[max(0, source(2))] // of the tree's 63, and holes
	r := &rig{
		t: t, name: name, source: source,
		real: ledger.New(ledger.Options{
			CapacityBytes: 1 << 20, Entries: most, Policy: p, PolicyName: name, Limits: limits, Quotas: []ledger.Quota{{Bytes: quotaPages * page}},
		}),
		model:  newModel(name, limits, most),
		owners: []ledger.Owner{ledger.Daemon},
	}
	r.model.works = ledger.Below(max(0, source(4)))
	r.real.Tuning().StackOn(func() ledger.Below { return r.model.works })
	return r
}

// path is the keys from the root to a node of a binary tree of 63.
func (r *rig) path() []key.Key {
	var k key.Key
	k.Space[3] = byte(max(0, r.source(2)))
	k.Hash[15] = byte(1 + max(0, r.source(63)))
	return pathTo(k)
}

func pathTo(k key.Key) (ks []key.Key) {
	for ; k.Hash[15] > 0; k.Hash[15] /= 2 {
		ks = append(ks, k)
	}
	slices.Reverse(ks)
	return ks
}

func (r *rig) holder() holder {
	return holder{r.owners[max(0, r.source(len(r.owners)))], ledger.Class(max(0, r.source(len(classes))))}
}

// run makes steps until the source ends.
func (r *rig) run() {
	steps := []func(){
		r.begin, r.begin, r.begin, r.begin, r.publish, r.publish, r.abort, r.hold, r.hold,
		r.unhold, r.unhold, r.touch, r.evict, r.evict, r.remove, r.free, r.free,
		r.owner, r.charge, r.restore, r.mark, r.look, r.store, r.store, r.store, r.evictOwn, r.evictOwn,
		r.announce, r.announce, r.claim, r.passBy, r.passBy, r.passBy, r.pass, func() { r.seldom(func() { r.seldom(r.cool) }) }, func() { r.seldom(r.assign) }, func() { r.seldom(r.turn) },
	}
	for {
		i := r.source(len(steps))
		if i < 0 {
			return
		}
		steps[i]()
		r.compare()
	}
}

func (r *rig) compare() {
	r.t.Helper()
	r.model.tidy()
	if err := r.real.Check(); err != nil {
		r.t.Fatal(err)
	}
	got, want := r.real.Stats(), r.model.stats()
	if got.EvictedUnused != r.unused {
		r.t.Fatalf("%d evictions of what was not used, want %d", got.EvictedUnused, r.unused)
	}
	if got.Evictions != r.evicts {
		r.t.Fatalf("%d evictions, want %d", got.Evictions, r.evicts)
	}
	quota := r.real.Quotas()[0]
	if quota.UsedBytes != r.model.quotaUsed() || quota.Evictions != r.model.evictions || quota.Refused != r.model.refused {
		r.t.Fatalf("quota %+v, want %d bytes, %d evictions, %d refused", quota, r.model.quotaUsed(), r.model.evictions, r.model.refused)
	}
	if free := got.CapacityBytes - got.UsedBytes; free+got.EvictableBytes+got.ProtectedBytes+got.LeavingBytes != got.CapacityBytes {
		r.t.Fatalf("free %d and the rest do not make the capacity: %+v", free, got)
	}
	want.CapacityBytes, want.Evictions, want.EvictedBytes, want.Steps = 1<<20, got.Evictions, got.EvictedBytes, got.Steps
	want.EvictedUnused, want.EvictedUnusedBytes = got.EvictedUnused, got.EvictedUnusedBytes
	want.ColdBytes = got.ColdBytes // see known
	if got != want {
		r.t.Fatalf("stats %+v\nwant  %+v", got, want)
	}
	for _, o := range r.owners {
		for _, c := range classes {
			if got, want := r.real.OwnerBytes(o, c), r.model.of(holder{o, c}); got != want {
				r.t.Fatalf("owner %d has %d bytes of %v, want %d", o, got, c, want)
			}
		}
	}
}

// seldom does it once in 8 times.
func (r *rig) seldom(do func()) {
	if r.source(8) == 0 {
		do()
	}
}

func (r *rig) same(what string, got, want error) {
	r.t.Helper()
	if !errors.Is(got, want) || (got == nil) != (want == nil) {
		r.t.Fatalf("%s: error %v, want %v", what, got, want)
	}
}

func TestModel(t *testing.T) {
	for i, name := range policy.All() {
		for seed := range *seeds {
			t.Run(fmt.Sprint(name, " ", seed), func(t *testing.T) {
				t.Parallel()
				rnd, n := rand.New(rand.NewPCG(uint64(seed), uint64(i))), *long*4 // draws an operation
				r := newRig(t, name, func(k int) int {
					if n--; n < 0 {
						return -1
					}
					return rnd.IntN(k)
				})
				r.run()
				r.drain()
			})
		}
	}
}

func FuzzModel(f *testing.F) {
	names := policy.All()
	for _, name := range []string{"lru", "tenure"} {
		i := slices.Index(names, name)
		if i < 0 {
			f.Fatalf("no policy is called %s", name)
		}
		f.Add(uint8(i), []byte{0, 0, 5, 0, 0, 1, 1, 4, 0, 5, 1, 12})
		f.Add(uint8(i), []byte("begin, publish, hold, evict, remove and free, in any order"))
	}
	f.Fuzz(func(t *testing.T, at uint8, data []byte) {
		r := newRig(t, names[int(at)%len(names)], func(k int) int {
			if len(data) == 0 {
				return -1
			}
			b := data[0]
			data = data[1:]
			return int(b) % k
		})
		r.run()
		r.drain()
	})
}
