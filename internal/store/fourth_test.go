package store_test

import (
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/writeback"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// fourth is a place that no code of the store names.
const fourth = tier.Remote + 1

// newFour is a rig whose tiers below DRAM are disk, a fourth one, and remote.
func newFour(t *testing.T, mode writeback.When, disk, toy, remote *tiertest.Memory) *rig {
	t.Helper()
	return newRig(t, options{
		mode: mode, disk: disk,
		more: []store.Below{{Place: fourth, Tier: toy}, {Place: tier.Remote, Tier: struct{ tier.Tier }{remote}}},
	})
}

// lose takes what a tier has of c from it, behind the store's back.
func (r *rig) lose(p tier.Place, from *tiertest.Memory, c *key.Chain) {
	r.t.Helper()
	ks := tiertest.Keys(c, 0, c.Len())
	if err := from.Delete(r.t.Context(), ks); err != nil {
		r.t.Fatal(err)
	}
	for _, k := range ks {
		r.Settle(p, k)
	}
}

// A fourth tier takes no change of the store: a stored chunk reaches
// it, comes up from it, is deleted there, and is found again by the next process.
func TestFourthTier(t *testing.T) {
	for _, mode := range []writeback.When{through, held} {
		const n = 8
		toy := tiertest.NewMemory("toy", 64*mib)
		synctest.Test(t, func(t *testing.T) {
			disk := tiertest.NewMemory("disk", 64*mib)
			remote := tiertest.NewMemory("remote", 64*mib)
			r := newFour(t, mode, disk, toy, remote)
			c, other := r.putChain(1, n), r.putChain(2, n)
			if mode == held {
				r.evict()
			}
			r.flush()
			for name, m := range map[string]*tiertest.Memory{"disk": disk, "toy": toy, "remote": remote} {
				if got := m.Stats().Entries; got != 2*n {
					t.Errorf("%s has %d chunks; want %d", name, got, 2*n)
				}
			}

			r.evict()
			r.lose(tier.Disk, disk, c)
			if m := r.match(c); m.In[fourth].Chunks != n {
				t.Errorf("the fourth tier is the nearest for %v; want all of %d chunks", m.In, n)
			}
			before := r.Operator.Stats().Loads[fourth].Chunks // those of writers to the remote tier
			for i := range n {
				ref, from, err := r.Loader.Load(t.Context(), store.Requester{Owner: ledger.Daemon}, c, i, tier.All)
				if err != nil || from != fourth {
					t.Fatalf("chunk %d comes from %v: %v", i, from, err)
				}
				if err := tiertest.CheckPayload(c.Key(i), ref.Block.Bytes()); err != nil {
					t.Error(err)
				}
				r.Leases.Release(ledger.Daemon, ledger.Lease, []tier.Ref{ref})
			}
			if st := r.Operator.Stats(); st.Loads[fourth].Chunks != before+n || st.Tiers[fourth].Entries != 2*n {
				t.Errorf("%+v", st.Loads)
			}

			if deleted, err := r.Remover.Delete(t.Context(), tiertest.Keys(other, 0, n)); deleted != n || err != nil {
				t.Errorf("%d chunks deleted: %v", deleted, err)
			}
			if m := r.match(other); m.Chunks != 0 || toy.Stats().Entries != n {
				t.Errorf("after a deletion %d chunks are found, and %d are in the fourth tier", m.Chunks, toy.Stats().Entries)
			}
			r.flush()
		})
		synctest.Test(t, func(t *testing.T) {
			r := newFour(t, mode, tiertest.NewMemory("disk", 64*mib), toy.Reopen(), tiertest.NewMemory("remote", 64*mib))
			synctest.Wait()
			c := tiertest.Chain(1, n)
			r.see(c)
			if m := r.match(c); m.In[fourth].Chunks != n || !r.Recovery.Ready() {
				t.Errorf("after a restart the fourth tier has %v; want %d chunks", m.In, n)
			}
		})
	}
}
