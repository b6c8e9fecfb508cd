package blob_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/blob"
	"github.com/kvstored/kvstored/internal/ledger"
)

func bytesOf(names []string) [][]byte {
	list := make([][]byte, len(names))
	for i, name := range names {
		list[i] = []byte(name)
	}
	return list
}

// each asks for every name alone.
func (r *rig) each(names []string) (n int) {
	for _, name := range names {
		if r.Has(r.t.Context(), []byte(name)) {
			n++
		}
	}
	return n
}

// leased is how much of DRAM is protected from eviction as leases.
func (r *rig) leased() int64 { return r.Stack.Stats().Ledger.ClassBytes[ledger.Lease] }

func (r *rig) awaitUnleased() {
	r.t.Helper()
	if time.Sleep(2 * blob.ShelterFor); r.leased() != 0 {
		r.t.Fatalf("%d bytes stay leased", r.leased())
	}
}

// TestPassesAreSingleCommands: random values, old and new, in DRAM and below, are
// found and deleted by passes as by one call a name, and as a model says. Lists
// have the length of some passes, and names twice.
func TestPassesAreSingleCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 32<<20)
		rng := rand.New(rand.NewPCG(1, 2))
		there := map[string]bool{}
		name := func() string { return fmt.Sprint("name", rng.IntN(700)) }
		draw := func(n int) []string {
			names := make([]string, n)
			for i := range names {
				names[i] = name()
			}
			return names
		}
		for round := range 20 {
			for range 300 {
				k, expires := name(), time.Time{}
				if rng.IntN(8) == 0 {
					expires = time.Now().Add(-time.Second)
				}
				r.set(k, make([]byte, rng.IntN(3000)), blob.Always, expires)
				there[k] = expires.IsZero()
			}
			if round%10 == 5 {
				for k, is := range there { // of one that lies on disk only its header tells that it has expired
					if !is {
						if _, err := r.Delete(t.Context(), []byte(k)); err != nil {
							t.Fatal(err)
						}
					}
				}
				r.Restart()
			}
			names := draw(rng.IntN(3 * blob.PassNames))
			want := 0
			for _, k := range names {
				if there[k] {
					want++
				}
			}
			if round%2 == 0 {
				if n := r.each(names); n != want {
					t.Fatalf("round %d: one by one %d are there, want %d", round, n, want)
				}
			}
			if n := r.CountHas(t.Context(), bytesOf(names)); n != want {
				t.Fatalf("round %d: %d of %d are there, want %d", round, n, len(names), want)
			}
			gone := draw(rng.IntN(3 * blob.DeleteNames))
			want = 0
			for _, k := range gone {
				if there[k] {
					want++
				}
				there[k] = false
			}
			if n, err := r.DeleteAll(t.Context(), bytesOf(gone)); n != want || err != nil {
				t.Fatalf("round %d: deleted %d, %v; want %d", round, n, err, want)
			}
			if n := r.each(gone) + r.CountHas(t.Context(), bytesOf(gone)); n != 0 {
				t.Fatalf("round %d: %d of what was deleted are there", round, n)
			}
		}
		r.awaitUnleased()
	})
}

// TestPassOfNothing: a list may be empty, and a name too long to have a value.
func TestPassOfNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 16<<20)
		r.set("", []byte("x"), blob.Always, time.Time{})
		long := make([]byte, blob.MaxName+1)
		for _, c := range []struct {
			list [][]byte
			want int
		}{{nil, 0}, {[][]byte{{}}, 1}, {[][]byte{long}, 0}, {[][]byte{{}, long, {}}, 2}} {
			if n := r.CountHas(t.Context(), c.list); n != c.want {
				t.Errorf("%d of %d names are there, want %d", n, len(c.list), c.want)
			}
		}
		if n, err := r.DeleteAll(t.Context(), [][]byte{long, {}, {}}); n != 1 || err != nil {
			t.Errorf("deleted %d, %v; want 1", n, err)
		}
		if n, err := r.DeleteAll(t.Context(), nil); n != 0 || err != nil {
			t.Errorf("deleted %d of nothing, %v", n, err)
		}
	})
}

// TestPassKeeps: what a pass finds in DRAM is leased once, however often it is
// asked for, and no more of it than may be.
func TestPassKeeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 16<<20) // of which a tenth may be kept
		var names []string
		for i := range 100 {
			names = append(names, fmt.Sprint(i))
			r.set(names[i], make([]byte, 100_000), blob.Always, time.Time{})
		}
		r.set("large", make([]byte, 2<<20), blob.Always, time.Time{})
		if n := r.CountHas(t.Context(), bytesOf([]string{"large"})); n != 1 || r.leased() != 0 {
			t.Errorf("%d bytes are leased, more than may be; %d are there", r.leased(), n)
		}
		few := bytesOf(slices.Concat(names[:8], names[:8]))
		for range 2 {
			if n := r.CountHas(t.Context(), few); n != 16 {
				t.Fatalf("%d of 16 are there", n)
			}
			if leased := r.leased(); leased < 8*100_000 || leased >= 16*100_000 {
				t.Errorf("%d bytes are leased for 8 values of 100,000", leased)
			}
		}
		if n := r.CountHas(t.Context(), bytesOf(names)); n != 100 || r.leased() > 16<<20/10 {
			t.Errorf("%d of 100 are there, and %d bytes leased", n, r.leased())
		}
		r.awaitUnleased()
	})
}

// TestPassPromotes: values that a pass finds below DRAM come up.
func TestPassPromotes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 16<<20)
		names := []string{"a", "b", "c"}
		for _, name := range names {
			r.set(name, []byte(name), blob.Always, time.Time{})
		}
		r.Restart()
		if n := r.CountHas(t.Context(), bytesOf([]string{"a", "none", "b", "a", "c"})); n != 4 { // also while the disk is being scanned
			t.Errorf("%d are there, want 4", n)
		}
		if time.Sleep(time.Second); r.Stack.Stats().Ledger.Entries < len(names) {
			t.Fatalf("%d of %d are promoted", r.Stack.Stats().Ledger.Entries, len(names))
		}
	})
}

// TestPassForgetsExpired: the room of a value that has expired is free again.
func TestPassForgetsExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 16<<20)
		r.set("old", []byte("x"), blob.Always, time.Now().Add(-time.Second))
		r.set("new", []byte("x"), blob.Always, time.Now().Add(time.Hour))
		if n := r.CountHas(t.Context(), bytesOf([]string{"old", "new", "old"})); n != 1 || r.Count() != 1 {
			t.Errorf("%d are there, %d are known; want 1 and 1", n, r.Count())
		}
	})
}

// TestPassesOwe: what cannot be deleted below is owed, of a pass as of single
// names, and reads as absent; what is not below is deleted.
func TestPassesOwe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 16<<20)
		for _, name := range []string{"a", "b", "single"} {
			r.set(name, []byte("old"), blob.Always, time.Time{})
		}
		r.Flush()
		r.Fault(failing)
		r.set("fresh", []byte("x"), blob.Always, time.Time{}) // no tier below has it
		if had, err := r.Delete(t.Context(), []byte("single")); !had || err != nil {
			t.Fatal(had, err)
		}
		if n, err := r.DeleteAll(t.Context(), bytesOf([]string{"a", "single", "fresh", "none", "b", "a"})); n != 3 || err != nil {
			t.Errorf("deleted %d, %v; want 3", n, err)
		}
		if owed := r.Owed(); owed != 3 {
			t.Errorf("%d deletions are owed, want 3", owed)
		}
		names := []string{"a", "b", "single", "fresh"}
		for _, name := range names {
			r.absent(name)
		}
		if n := r.CountHas(t.Context(), bytesOf(names)); n != 0 {
			t.Errorf("%d are there that are owed", n)
		}
		if n, err := r.DeleteAll(t.Context(), bytesOf(names)); n != 0 || err != nil {
			t.Errorf("deleted %d of what is owed, %v", n, err)
		}
		if err := r.trySet("fresh", "new"); err != nil {
			t.Errorf("set of what is not owed: %v", err)
		}
		r.Fault(nil)
		r.awaitPaid()
		r.set("a", []byte("new"), blob.Always, time.Time{})
		if n := r.CountHas(t.Context(), bytesOf(names)); n != 2 {
			t.Errorf("%d are there, want a and fresh", n)
		}
	})
}

// TestPassesRace: passes that delete, writers and readers of the same names end, and
// leave no lease behind.
func TestPassesRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 32<<20)
		var names []string
		for i := range 200 {
			names = append(names, fmt.Sprint(i))
		}
		list := bytesOf(names)
		backwards := slices.Clone(list)
		slices.Reverse(backwards)
		done := make(chan struct{})
		for _, work := range []func(){
			func() { _, _ = r.DeleteAll(t.Context(), list) },
			func() { _, _ = r.DeleteAll(t.Context(), backwards) },
			func() { r.CountHas(t.Context(), list) },
			func() { r.CountHas(t.Context(), backwards) },
			func() {
				for _, name := range list {
					f, err := r.Begin(t.Context(), r.o, name, 100)
					if err != nil {
						t.Error(err)
						return
					}
					if _, err := f.Store(t.Context(), blob.Always, time.Time{}); err != nil {
						t.Error(err)
					}
				}
			},
		} {
			go func() {
				defer func() { done <- struct{}{} }()
				for range 30 {
					work()
				}
			}()
		}
		for range 5 {
			<-done
		}
		if n, err := r.DeleteAll(t.Context(), list); err != nil || r.CountHas(t.Context(), list) != 0 {
			t.Errorf("deleted %d, %v, and some are there", n, err)
		}
		r.awaitUnleased()
	})
}

// TestPassAllocatesNothing: per name, once the values are kept.
func TestPassAllocatesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 32<<20)
		var names []string
		for i := range 1000 {
			names = append(names, fmt.Sprint(i))
			r.set(names[i], []byte("x"), blob.Always, time.Time{})
		}
		list := bytesOf(names)
		least := 1000.0
		for range 20 { // in some runs the pool is emptied
			r.CountHas(t.Context(), list)
			least = min(least, testing.AllocsPerRun(5, func() { r.CountHas(t.Context(), list) }))
		}
		if least > 50 {
			t.Errorf("%v allocations for 1,000 names", least)
		}
	})
}
