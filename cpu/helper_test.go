package cpu_test

import (
	"context"
	"testing"

	"github.com/kvstored/kvstored/cpu"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// drops collects victims, and gives their blocks back.
type drops []tier.Victim

func (d *drops) take(v tier.Victim) bool {
	v.Block.Release()
	*d = append(*d, v)
	return false
}

func (d *drops) keys() (ks []key.Key) {
	for _, v := range *d {
		ks = append(ks, v.Key)
	}
	return ks
}

// fillOf asks for room for chunk i of c.
func fillOf(o ledger.Owner, c *key.Chain, i, n int, d *drops) tier.Fill {
	return tier.Fill{
		Record: tier.Record{Key: c.Key(i), Parent: c.Parent(i), Depth: uint32(i), Tokens: c.Tokens[i], Size: uint32(n)},
		Owner:  o, Class: ledger.Lease, Drop: d.take,
	}
}

// reserve fills chunk i of c and leaves it unpublished.
func reserve(t *testing.T, h *cpu.Tier, o ledger.Owner, c *key.Chain, i, n int) tier.Ref {
	t.Helper()
	var d drops
	ref, st, err := h.Reserve(t.Context(), fillOf(o, c, i, n, &d))
	if err != nil || st != ledger.Absent {
		t.Fatalf("reserve chunk %d: state %d, error %v", i, st, err)
	}
	write(ref, c.Key(i))
	return ref
}

// write fills and seals a block.
func write(ref tier.Ref, k key.Key) {
	tiertest.Fill(ref.Block.Bytes(), k)
	ref.Block.Seal()
}

// store publishes n chunks of size bytes of a new chain.
func store(t *testing.T, h *cpu.Tier, seed uint64, n, size int) *key.Chain {
	t.Helper()
	c := tiertest.Chain(seed, n)
	for i := range n {
		h.Publish([]tier.Ref{reserve(t, h, ledger.Daemon, c, i, size)}, false, false)
	}
	return c
}

// clear deletes whole chains.
func clear(t *testing.T, h *cpu.Tier, chains ...*key.Chain) {
	t.Helper()
	for _, c := range chains {
		if err := h.Delete(context.Background(), tiertest.Keys(c, 0, c.Len())); err != nil {
			t.Error(err)
		}
	}
	if st := h.Ledger().Stats(); st.Entries != 0 || st.Filling != 0 || st.UsedBytes != 0 {
		t.Errorf("after everything was deleted: %+v", st)
	}
}
