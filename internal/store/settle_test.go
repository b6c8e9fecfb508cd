package store_test

import (
	"errors"
	"flag"
	"math/rand/v2"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

var settleRounds = flag.Int("settle.rounds", 300, "rounds of every worker of TestSettle")

// TestSettle lets clients put, read, load and delete chunks of the same few
// chains, in a store so small that both tiers evict all the time, and then
// compares the index with the tiers for every key (rig.stop). Every byte
// that is read on the way is checked.
func TestSettle(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			const raceSize = 8 * kib
			r := newRig(t, options{
				capacity: 24 * raceSize,
				limits:   ledger.Limits{Lease: 12 * raceSize, Load: 6 * raceSize, Unwritten: 6 * raceSize, Total: 18 * raceSize},
				mode:     mode,
				verify:   7,
				disk:     tiertest.NewMemory("disk", 30*raceSize),
			})
			var chains []*key.Chain
			for seed := range uint64(6) {
				c := tiertest.Chain(seed+1, 10)
				chains = append(chains, c)
				r.see(c)
			}
			var g errgroup.Group
			for n := range 6 {
				g.Go(func() error {
					o := r.Leases.NewOwner()
					defer r.Leases.CloseOwner(o)
					rnd := rand.New(rand.NewPCG(uint64(n), 2))
					for range *settleRounds {
						if err := r.settleStep(o, chains[rnd.IntN(len(chains))], rnd, raceSize); err != nil {
							return err
						}
					}
					return nil
				})
			}
			if err := g.Wait(); err != nil {
				t.Fatal(err)
			}
			r.flush()
			st := r.Store.Operator.Stats()
			if st.Corrupt != 0 || st.Inconsistent != 0 {
				t.Errorf("%d corrupt, %d inconsistent; want none", st.Corrupt, st.Inconsistent)
			}
			if cpu, disk := st.Tiers[tier.CPU].Evictions, st.Tiers[tier.Disk].Evictions; cpu == 0 || disk == 0 && name == "through" {
				t.Errorf("%d evictions from DRAM and %d from disk: the test is too roomy", cpu, disk)
			}
		})
	}
}

// settleStep is one request of a client.
func (r *rig) settleStep(o ledger.Owner, c *key.Chain, rnd *rand.Rand, n int) error {
	ctx := r.t.Context()
	switch rnd.IntN(10) {
	case 0:
		i := rnd.IntN(c.Len())
		_, err := r.Remover.Delete(ctx, tiertest.Keys(c, i, min(i+3, c.Len())))
		return err
	case 1, 2, 3:
		return r.readAll(o, c)
	}
	i := rnd.IntN(c.Len())
	grants, _ := r.reserve(o, c, i, min(i+4, c.Len()), n) // no room is an answer
	for j, g := range grants {
		if g.Status != store.Granted {
			continue
		}
		refs := fill(c, i+j, grants[j:j+1])
		if rnd.IntN(8) == 0 {
			r.Filler.Abort(refs)
		} else {
			commit(r.Store, c, i+j, refs)
		}
	}
	return nil
}

// readAll reads as much of c as it can get.
func (r *rig) readAll(o ledger.Owner, c *key.Chain) error {
	m, err := r.Lookups.Match(r.t.Context(), c, tier.All)
	if err != nil {
		return err
	}
	refs := make([]tier.Ref, c.Len())
	n, _ := r.Leases.Hold(o, ledger.Lease, c, 0, m.Hot, refs)
	defer func() { r.Leases.Release(o, ledger.Lease, refs[:n]) }()
	for n < m.Chunks {
		ref, _, err := r.Loader.Load(r.t.Context(), store.Requester{Owner: o}, c, n, tier.All)
		if errors.Is(err, tier.ErrNotFound) || errors.Is(err, tier.ErrOverBudget) || errors.Is(err, tier.ErrNoSpace) {
			break
		}
		if err != nil {
			return err
		}
		refs[n] = ref
		n++
	}
	r.Leases.Touch(c, 0, n)
	for i, ref := range refs[:n] {
		if err := tiertest.CheckPayload(c.Key(i), ref.Block.Bytes()); err != nil {
			return err
		}
	}
	return nil
}
