package store_test

import (
	"cmp"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/stale"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// distrust has a space be distrusted, which nothing keeps here.
func (r *rig) distrust(id key.SpaceID) {
	r.t.Helper()
	if first, err := r.Operator.Distrusted().Add(id, stale.Distrust{}); !first || !errors.Is(err, stale.ErrNotKept) {
		r.t.Fatalf("%t, %v", first, err)
	}
	if err := r.Operator.Announce(r.t.Context(), id); err != nil {
		r.t.Fatal(err)
	}
}

// TestDistrustedIsNoWork: of a distrusted space no path finds, stores or brings up a chunk,
// and none asks a tier for it. What was being filled when it was distrusted is not stored.
func TestDistrustedIsNoWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		count := func(tierfault.Call) (f tierfault.Fault) { calls.Add(1); return f }
		bucket := tiertest.NewMemory("remote", 64*mib)
		r := newRig(t, options{hook: count, remote: struct{ tier.Tier }{tierfault.Wrap(bucket, count)}})
		c := tiertest.Chain(1, 6)
		r.put(c, 0, 4, size)
		r.flush()
		r.evict()
		filling, err := r.reserve(ledger.Daemon, c, 4, 5, size)
		if err != nil || filling[0].Status != store.Granted {
			t.Fatalf("%+v, %v", filling, err)
		}
		r.distrust(c.Space)
		stored := make([]bool, 1)
		r.Filler.Commit(c, 4, fill(c, 4, filling), 0, stored)
		if stored[0] {
			t.Error("what was filled before is stored after")
		}
		for _, force := range []bool{false, true} {
			n, err := r.Filler.Reserve(t.Context(), store.Reservation{Owner: ledger.Daemon, Force: force}, c, 5, repeat(size, 1), make([]store.Grant, 1))
			if n != 0 || !errors.Is(err, store.ErrNotAdmitted) {
				t.Errorf("force %t: room for %d, %v", force, n, err)
			}
		}
		synctest.Wait()
		before := calls.Load()
		r.wantIn(c, 0, 0)
		if err := r.load(c, 0); !errors.Is(err, tier.ErrNotFound) {
			t.Errorf("a load: %v", err)
		}
		if n, _, err := r.Loader.Warm(t.Context(), store.Requester{Owner: ledger.Daemon}, c, 0, tier.All); n != 0 || !errors.Is(err, tier.ErrNotFound) {
			t.Errorf("warming: %d bytes, %v", n, err)
		}
		if scan, err := r.Lookups.ScanRemote(c, 0, tier.All); scan != nil || err != nil {
			t.Errorf("the bucket is asked: %v, %v", scan, err)
		}
		if n := calls.Load() - before; n != 0 {
			t.Errorf("tiers had %d calls for it", n)
		}
		if was, err := r.Operator.Distrusted().Trust(c.Space); !was || cmp.Or(err, r.Operator.Announce(t.Context(), c.Space)) != nil {
			t.Errorf("%t, %v", was, err)
		}
		r.wantIn(c, 0, 4)
	})
}

// TestDistrustedStaysHere: chunks of a distrusted space are not sent to the bucket, where
// other machines would find them: not by an upload, and not behind a flush.
func TestDistrustedStaysHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := tiertest.NewMemory("remote", 64*mib)
		disk, trunk, branch := left(t, 8)
		r := newRig(t, options{capacity: mib, disk: disk, remote: struct{ tier.Tier }{bucket}, mode: held}) // nothing is sent before the flush
		r.see(trunk)
		r.see(branch)
		pending := tiertest.Chain(77, 3)
		pending.Space[0]++
		r.put(pending, 0, 3, size)
		r.distrust(pending.Space)
		r.distrust(trunk.Space)
		r.flush()
		r.wantUploaded(store.Uploaded{})
		if n := bucket.Stats().Entries; n > 0 {
			t.Errorf("the bucket has %d chunks", n)
		}
	})
}
