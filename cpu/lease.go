package cpu

import (
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// batch is how many entries one lock round handles; the scratch for them
// lies on the stack.
const batch = 256

// few is a run for which less scratch is made: it is cleared at each call.
const few = 8

// Hold implements tier.Hot.
func (t *Tier) Hold(o ledger.Owner, c ledger.Class, ks []key.Key, refs []tier.Ref) (int, error) {
	if len(ks) <= few {
		var scratch [few]ledger.Entry
		return holdRun(t, o, c, ks, refs, scratch[:])
	}
	var scratch [batch]ledger.Entry
	return holdRun(t, o, c, ks, refs, scratch[:])
}

// holdRun is Hold with scratch for as many entries as one lock round handles.
func holdRun(t *Tier, o ledger.Owner, c ledger.Class, ks []key.Key, refs []tier.Ref, scratch []ledger.Entry) (int, error) {
	n := 0
	for n < len(ks) {
		part := ks[n:min(n+len(scratch), len(ks))]
		t.deleting.RLock()
		got, err := t.ledger.Hold(o, c, part, scratch)
		for i, e := range scratch[:got] {
			refs[n+i] = tier.Ref{ID: e.ID, Block: t.block(e).Retain(), Dirty: e.Dirty, Hits: e.Hits}
		}
		t.deleting.RUnlock()
		if right := sound(t, o, c, part, refs[n:n+got]); right < got {
			return n + right, nil
		}
		n += got
		if got < len(part) {
			return n, err
		}
	}
	return n, nil
}

// Release implements tier.Hot.
func (t *Tier) Release(o ledger.Owner, c ledger.Class, refs []tier.Ref) {
	var ids [batch]ledger.ID
	for len(refs) > 0 {
		part := refs[:min(batch, len(refs))]
		// The blocks first: a waiter that the ledger wakes finds that an eviction
		// frees room.
		for i, r := range part {
			ids[i] = r.ID
			r.Block.Release()
			part[i] = tier.Ref{}
		}
		t.ledger.Unhold(o, c, ids[:len(part)])
		refs = refs[len(part):]
	}
}
