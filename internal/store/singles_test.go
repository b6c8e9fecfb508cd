package store_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// booked is a disk with books that follow what it has.
type booked struct {
	*tiertest.Memory
	ledger *ledger.Ledger
}

func newBooked(t *testing.T, most int64) booked {
	lru, err := policy.New("lru", 64*mib)
	if err != nil {
		t.Fatal(err)
	}
	return booked{tiertest.NewMemory("disk", 64*mib), ledger.New(ledger.Options{CapacityBytes: 64 * mib, Policy: lru, Limits: ledger.Limits{Lease: most}})}
}

func (b booked) Ledger() *ledger.Ledger { return b.ledger }
func (b booked) Room(uint32) int        { return 1 << 20 }

func (b booked) Put(ctx context.Context, e tier.Entry) error {
	err := b.Memory.Put(ctx, e)
	if err == nil {
		b.ledger.Restore(ledger.Entry{Key: e.Key, Size: e.Size}, e.Parent)
	}
	return err
}

func (b booked) Delete(ctx context.Context, ks []key.Key) error {
	for _, k := range ks {
		if e, ok := b.ledger.Remove(k); ok {
			b.ledger.Free(e.ID)
		}
	}
	return b.Memory.Delete(ctx, ks)
}

// victims empties the books as eviction would, and returns what it may take.
func (b booked) victims() map[key.Key]bool {
	gone := make(map[key.Key]bool)
	for e, ok := b.ledger.Evict(); ok; e, ok = b.ledger.Evict() {
		gone[e.Key] = true
		b.ledger.Free(e.ID)
	}
	return gone
}

// What is held is what single lookups find in DRAM and on disk, whatever is missing
// between, and neither tier evicts it before the end.
func TestSinglesAreWhatIsThere(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { singles(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func singles(t *testing.T, rnd *rand.Rand) {
	disk := newBooked(t, 0)
	remote := tiertest.NewMemory("remote", 1<<40)
	r := newRig(t, options{disk: disk.Memory, planner: disk, remote: struct{ tier.Tier }{remote}})
	c := tiertest.Chain(rnd.Uint64(), 1+rnd.IntN(24))
	r.see(c)
	for i := range c.Len() {
		if rnd.IntN(3) > 0 {
			r.put(c, i, i+1, size)
		}
	}
	r.flush()
	for i := range c.Len() {
		ks := []key.Key{c.Key(i)}
		if rnd.IntN(2) == 0 {
			_ = r.hot.Delete(t.Context(), ks)
		}
		if rnd.IntN(3) == 0 { // as when it is evicted, and the index does not know yet
			_ = disk.Delete(t.Context(), ks)
		}
	}
	var want, got []int
	in := make([]string, c.Len())
	for i := range c.Len() {
		switch {
		case r.hot.Has(c.Key(i)):
			in[i] = "DRAM"
		case disk.Has(c.Key(i)):
			in[i] = "disk"
		}
	}
	from := rnd.IntN(c.Len() + 1)
	for i := from; i < c.Len(); i++ {
		if in[i] != "" {
			want = append(want, i)
		}
	}
	o := r.Leases.NewOwner()
	var s store.Singles
	r.Leases.HoldSingles(&s, o, c, from, tier.All, func(i int) { got = append(got, i) })
	if !slices.Equal(got, want) {
		t.Fatalf("held %v, there are %v", got, want)
	}
	for r.hot.EvictOne(func(v tier.Victim) bool { v.Block.Release(); return true }) {
	}
	gone := disk.victims()
	for _, i := range got {
		if in[i] == "disk" && gone[c.Key(i)] || in[i] == "DRAM" && !r.hot.Has(c.Key(i)) {
			t.Errorf("chunk %d was evicted from %s while it was held", i, in[i])
		}
	}
	r.Leases.EndSingles(&s)
	r.Leases.CloseOwner(o)
	if st := disk.ledger.Stats(); st.ClassBytes[ledger.Lease] != 0 {
		t.Errorf("still held on disk: %+v", st)
	}
	if _, err := r.Remover.Delete(t.Context(), tiertest.Keys(c, 0, c.Len())); err != nil { // the index is true again
		t.Error(err)
	}
}

// forgetful is a DRAM that lacks chunks of which the index believes that it has them.
type forgetful struct {
	tier.Hot
	gone  map[key.Key]bool
	asked int // chunks
}

func (f *forgetful) Hold(o ledger.Owner, cl ledger.Class, ks []key.Key, refs []tier.Ref) (int, error) {
	f.asked += len(ks)
	if i := slices.IndexFunc(ks, func(k key.Key) bool { return f.gone[k] }); i >= 0 {
		ks = ks[:i]
	}
	return f.Hot.Hold(o, cl, ks, refs)
}

// everyOther has it lack chunks 1, 3 and so on.
func (f *forgetful) everyOther(c *key.Chain) {
	f.gone = make(map[key.Key]bool)
	for i := 1; i < c.Len(); i += 2 {
		f.gone[c.Key(i)] = true
	}
}

// Chunks that have left DRAM are held on disk, and cost no more than twice what others do.
func TestSinglesThatAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 1000
		disk, hot := newBooked(t, 0), &forgetful{}
		r := newRig(t, options{capacity: 8 * mib, disk: disk.Memory, planner: disk, hot: func(h tier.Hot) tier.Hot { hot.Hot = h; return hot }})
		c := tiertest.Chain(1, n)
		r.put(c, 0, n, kib)
		r.flush()
		hot.everyOther(c)
		hot.asked = 0
		var s store.Singles
		held := 0
		r.Leases.HoldSingles(&s, ledger.Daemon, c, 0, tier.All, func(i int) {
			if i != held {
				t.Fatalf("chunk %d is held after %d others", i, held)
			}
			held++
		})
		r.Leases.EndSingles(&s)
		if held != n || hot.asked > 2*n+128 {
			t.Errorf("%d of %d are held, DRAM was asked for %d", held, n, hot.asked)
		}
	})
}

// What clients hold on disk has a bound, beyond which nothing is held there, and what is
// deleted meanwhile goes with its hold.
func TestSinglesOnDiskAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newBooked(t, 4*size)
		r := newRig(t, options{disk: disk.Memory, planner: disk})
		c := r.putChain(1, 9)
		r.flush()
		_ = r.hot.Delete(t.Context(), tiertest.Keys(c, 0, 9))
		var first, second store.Singles
		var got []int
		hold := func(s *store.Singles) []int {
			got = nil
			r.Leases.HoldSingles(s, ledger.Daemon, c, 2, tier.All, func(i int) { got = append(got, i) })
			return got
		}
		if n := hold(&first); !slices.Equal(n, []int{2, 3, 4, 5}) {
			t.Errorf("held %v", n)
		}
		if n := hold(&second); !slices.Equal(n, []int{2, 3, 4, 5}) { // once more costs nothing
			t.Errorf("held %v", n)
		}
		r.Leases.EndSingles(&first)
		_ = disk.Delete(t.Context(), tiertest.Keys(c, 0, 9))
		r.Leases.EndSingles(&second)
		if _, err := r.Remover.Delete(t.Context(), tiertest.Keys(c, 0, c.Len())); err != nil {
			t.Error(err)
		}
		if st := disk.ledger.Stats(); st.UsedBytes != 0 || st.ClassBytes[ledger.Lease] != 0 {
			t.Errorf("left: %+v", st)
		}
	})
}
