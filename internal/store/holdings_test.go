package store_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

func (r *rig) wantHoldings(want store.Holdings) {
	r.t.Helper()
	h, err := r.Operator.Holdings(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	for p, n := range want.Tiers {
		if h.Tiers[p] != n {
			r.t.Errorf("%d chunks in %s; want %d", h.Tiers[p], p, n)
		}
	}
	if h.Chunks != want.Chunks || len(h.Tiers) != len(want.Tiers) || h.Missing != want.Missing || h.MissingBytes != want.MissingBytes || h.Local != want.Local {
		r.t.Errorf("%+v; want %+v", h, want)
	}
}

// TestHoldings: chunks that were stored before there was a bucket are on disk only, and
// a flush does not hide that.
func TestHoldings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := tiertest.NewMemory("remote", 64*mib)
		disk, trunk, branch := left(t, 4)
		r := newRig(t, options{disk: disk, remote: struct{ tier.Tier }{bucket}})
		r.see(trunk)
		r.see(branch)
		local := tiertest.Chain(9, 1)
		local.Space[0]++
		r.Writers.KeepLocal(local.Space)
		r.put(local, 0, 1, size)
		r.putChain(3, 2)
		r.flush()
		type in = map[tier.Place]uint64
		r.wantHoldings(store.Holdings{
			Chunks: 9, Tiers: in{tier.CPU: 3, tier.Disk: 9, tier.Remote: 2}, Missing: 6, MissingBytes: 6 * size, Local: 1,
		})
	})
}

// TestHoldingsUnknown: nothing is said of a disk that is not known yet.
func TestHoldingsUnknown(t *testing.T) {
	r := newRig(t, options{idle: true})
	if _, err := r.Operator.Holdings(t.Context()); !errors.Is(err, tier.ErrOff) {
		t.Errorf("of a disk that was not scanned: %v", err)
	}
}
