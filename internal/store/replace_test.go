package store_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// replace stores size bytes of the given value under the only key of c.
func (r *rig) replace(o ledger.Owner, c *key.Chain, temp, value byte) {
	r.t.Helper()
	r.see(c)
	ref, err := r.Filler.Open(context.Background(), o, key.Key{Space: c.Space, Hash: key.Hash{0: 0xff, 15: temp}}, size, tier.Wait)
	if err != nil {
		r.t.Error(err)
		return
	}
	ref.Block.SealSum(ref.Block.Write(bytes.Repeat([]byte{value}, size)))
	if err := r.Filler.Replace(context.Background(), c, ref); err != nil {
		r.t.Error(err)
	}
}

// value returns the byte that the chunk stored under c consists of.
func (r *rig) value(o ledger.Owner, c *key.Chain) byte {
	r.t.Helper()
	ref, _, err := r.Loader.Load(context.Background(), store.Requester{Owner: o}, c, 0, tier.All)
	if err != nil {
		r.t.Fatalf("load: %v", err)
	}
	defer r.Leases.Release(o, ledger.Lease, []tier.Ref{ref})
	b := ref.Block.Bytes()
	if len(b) != size || bytes.Count(b, b[:1]) != size {
		r.t.Fatal("torn value")
	}
	return b[0]
}

// Writes behind, loads and evictions interleave with a Replace in many ways: a
// read after it gives the bytes that it stored, also once they have been to disk
// and back.
func TestReplaceWins(t *testing.T) {
	slow := func(tierfault.Call) tierfault.Fault { return tierfault.Fault{Delay: 200 * time.Microsecond} }
	r := newRig(t, options{hook: slow})
	c := tiertest.Chain(1, 1)
	o := r.Leases.NewOwner()
	defer r.Leases.CloseOwner(o)
	var readers sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	readers.Go(func() { // loads race with everything
		p := r.Leases.NewOwner()
		defer r.Leases.CloseOwner(p)
		for ctx.Err() == nil {
			if ref, _, err := r.Loader.Load(ctx, store.Requester{Owner: p}, c, 0, tier.All); err == nil {
				r.Leases.Release(p, ledger.Lease, []tier.Ref{ref})
			}
			r.evict()
		}
	})
	for v := range byte(100) {
		r.replace(o, c, 1, v)
		if v%3 == 0 {
			r.flush()
		}
	}
	stop()
	readers.Wait()
	r.replace(o, c, 1, 200)
	r.flush()
	r.evict()
	if got := r.value(o, c); got != 200 {
		t.Errorf("read %d after 200 was stored", got)
	}
}

// A reader keeps the bytes it holds.
func TestReplaceLeavesReaders(t *testing.T) {
	r := newRig(t, options{lone: true})
	c := tiertest.Chain(1, 1)
	o := r.Leases.NewOwner()
	defer r.Leases.CloseOwner(o)
	r.replace(o, c, 1, 1)
	refs := make([]tier.Ref, 1)
	if n, err := r.Leases.Hold(o, ledger.Lease, c, 0, 1, refs); n != 1 {
		t.Fatal(err)
	}
	r.replace(o, c, 1, 2)
	if got := refs[0].Block.Bytes()[0]; got != 1 {
		t.Errorf("the reader sees %d", got)
	}
	r.Leases.Release(o, ledger.Lease, refs)
	if got := r.value(o, c); got != 2 {
		t.Errorf("read %d after 2 was stored", got)
	}
}

// What a tier in trouble does not have can be stored and deleted without it.
func TestReplaceWithoutDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var off atomic.Bool
		r := newRig(t, options{hook: func(c tierfault.Call) tierfault.Fault {
			if off.Load() && c.Op != tierfault.Recover {
				return tierfault.Fault{Err: tier.ErrOff}
			}
			return tierfault.Fault{}
		}})
		there, absent := tiertest.Chain(1, 1), tiertest.Chain(2, 1)
		o := r.Leases.NewOwner()
		r.replace(o, there, 1, 1)
		r.flush()
		off.Store(true)
		r.replace(o, absent, 2, 2)
		r.replace(o, absent, 3, 3)
		if got := r.value(o, absent); got != 3 {
			t.Errorf("read %d after 3 was stored", got)
		}
		if _, err := r.Remover.Delete(t.Context(), tiertest.Keys(absent, 0, 1)); err != nil {
			t.Errorf("delete what the disk does not have: %v", err)
		}
		if _, err := r.Remover.Delete(t.Context(), tiertest.Keys(there, 0, 1)); !errors.Is(err, tier.ErrOff) {
			t.Errorf("delete what the disk has: %v; want that it is off", err)
		}
		off.Store(false)
		if _, err := r.Remover.Delete(t.Context(), tiertest.Keys(there, 0, 1)); err != nil {
			t.Error(err)
		}
		r.Leases.CloseOwner(o)
	})
}
