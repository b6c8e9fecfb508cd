package blob_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/blob"
)

// TestLeaseIsFetch: values that one pass leases are those that one call a name finds:
// in DRAM and below, expired, deleted, and twice in a list. What was not taken is given
// back.
func TestLeaseIsFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 32<<20)
		rng := rand.New(rand.NewPCG(5, 6))
		there := map[string][]byte{}
		for round := range 20 {
			for range 100 {
				k, expires := fmt.Sprint("name", rng.IntN(300)), time.Time{}
				if rng.IntN(8) == 0 {
					expires = time.Now().Add(-time.Second)
				}
				value := bytes.Repeat([]byte(fmt.Sprint(k, round)), 1+rng.IntN(300))
				r.set(k, value, blob.Always, expires)
				if there[k] = value; !expires.IsZero() {
					delete(there, k)
				}
			}
			if k := fmt.Sprint("name", rng.IntN(300)); round%2 == 0 {
				if _, err := r.Delete(t.Context(), []byte(k)); err != nil {
					t.Fatal(err)
				}
				delete(there, k)
			}
			if round%10 == 5 {
				r.Restart()
			}
			names := make([]string, 1+rng.IntN(blob.PassNames))
			for i := range names {
				names[i] = fmt.Sprint("name", rng.IntN(300))
			}
			leased := r.Lease(t.Context(), r.o, bytesOf(names))
			for i, k := range names {
				if rng.IntN(20) == 0 {
					break
				}
				v, err := leased.Take(t.Context(), i)
				switch want, is := there[k]; {
				case is && (err != nil || !bytes.Equal(v.Bytes(), want)):
					t.Fatalf("round %d: %s: %v, or other bytes", round, k, err)
				case !is && !errors.Is(err, blob.ErrNotFound):
					t.Fatalf("round %d: %s has no value: %v", round, k, err)
				}
				if err == nil {
					v.Release()
				}
			}
			leased.Close()
		}
		r.awaitUnleased()
	})
}

// TestLeaseGivesWay: a value that comes up has the room that those behind it were leased
// with; each value is found.
func TestLeaseGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 16<<20)
		r.o = r.Stack.NewOwner()
		defer func() { r.awaitUnleased(); r.Stack.CloseOwner(r.o) }()
		large := make([]byte, 3<<20) // below what may be unwritten, a quarter of DRAM: else it stays in DRAM only
		r.set("large", large, blob.Always, time.Time{})
		r.Flush()
		names := []string{"large"}
		for i := range 12 { // which evict it
			names = append(names, fmt.Sprint("small", i))
			r.set(names[i+1], make([]byte, 1<<20), blob.Always, time.Time{})
		}
		leased := r.Lease(t.Context(), r.o, bytesOf(names))
		defer leased.Close()
		for i, name := range names {
			v, err := leased.Take(t.Context(), i)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			v.Release()
		}
	})
}

// TestLeaseOwes: what is deleted, and cannot be below, is no value, also where DRAM has it.
func TestLeaseOwes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 16<<20)
		r.set("a", []byte("old"), blob.Always, time.Time{})
		r.set("b", []byte("x"), blob.Always, time.Time{})
		r.Flush()
		r.Fault(failing)
		if had, err := r.Delete(t.Context(), []byte("a")); !had || err != nil {
			t.Fatal(had, err)
		}
		leased := r.Lease(t.Context(), r.o, bytesOf([]string{"a", "b"}))
		defer leased.Close()
		if _, err := leased.Take(t.Context(), 0); !errors.Is(err, blob.ErrOwed) {
			t.Errorf("a value that is deleted: %v", err)
		}
		v, err := leased.Take(t.Context(), 1)
		if err != nil || string(v.Bytes()) != "x" {
			t.Fatal(err)
		}
		v.Release()
		r.Fault(nil)
		r.awaitPaid()
	})
}

// TestLeaseFindsWhatMoves: values that leave DRAM and come up while passes look for them
// are found by each.
func TestLeaseFindsWhatMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 16<<20)
		var names []string
		for i := range 40 {
			names = append(names, fmt.Sprint("name", i))
			r.set(names[i], bytes.Repeat([]byte(names[i]), 10_000), blob.Always, time.Time{})
		}
		r.Flush()
		stop := make(chan struct{})
		var others sync.WaitGroup
		others.Go(func() { // which evict them
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				r.set(fmt.Sprint("other", i%40), make([]byte, 500_000), blob.Always, time.Time{})
			}
		})
		for round := range 1000 {
			leased := r.Lease(t.Context(), r.o, bytesOf(names))
			for i, name := range names {
				v, err := leased.Take(t.Context(), i)
				if errors.Is(err, blob.ErrNoRoom) {
					continue
				}
				if err != nil || !bytes.HasPrefix(v.Bytes(), []byte(name)) {
					t.Errorf("round %d: %s: %v", round, name, err)
					continue
				}
				v.Release()
			}
			leased.Close()
		}
		close(stop)
		others.Wait()
	})
}
