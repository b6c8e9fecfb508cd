package ledger

import (
	"slices"

	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
)

// QuotaChange is one quota in the place of those of Options.
type QuotaChange struct {
	Quota
	// Was is the place of the quota that this one continues, with its counts and
	// its order of eviction; -1 for none.
	Was int
}

// SetQuotas replaces the quotas. under says which one each space is under from
// now on, by its place in qs; a space that it does not name is under none until
// Assign says otherwise. A space over its new quota evicts as after an Assign.
//
// Entries whose space goes under another quota leave the order of the old one,
// and join that of the new one in the order in which they came, 4,096 entries a
// lock round. The ledger is usable meanwhile, and enforces no quota. It must not
// run at the same time as Assign. The error is of the policy, which is the one
// that the ledger has: there is none.
func (t *Tuning) SetQuotas(qs []QuotaChange, under map[key.SpaceID]int) error {
	t.switching.Lock()
	defer t.switching.Unlock()
	fresh, err := t.mu.book.policies.replaced(qs)
	if err != nil {
		return err
	}
	t.mu.round(func(b *book) { b.beginSetQuotas(qs, under) })
	t.mu.each(maxRound, func(b *book, id uint32, e *entry) {
		if e.mark&inQuota != 0 && b.spaces.slots.At(e.space).moving {
			b.policies.scopes[b.spaces.slots.At(e.space).quota].policy.Remove(policy.ID(id))
			e.mark &^= inQuota
		}
	})
	t.mu.round(func(b *book) { b.swapQuotas(qs, fresh, under) })
	t.mu.each(maxRound, func(b *book, id uint32, e *entry) {
		if e.life == resident && e.mark&inQuota == 0 && b.spaces.slots.At(e.space).quota != everything {
			b.policies.joinQuota(id)
		}
	})
	for i, q := range qs {
		if q.Was >= 0 && fresh[i] != nil {
			handOver(t.mu, uint32(firstQuota+i), fresh[i])
		}
	}
	t.mu.round(func(b *book) {
		b.policies.changingQuotas = false
		b.released = true // a quota may have more room
	})
	return nil
}

// replaced makes a policy for each quota that is new or of another size than
// before. The lock is not held: only SetPolicy and SetQuotas change these fields.
func (p *policies) replaced(qs []QuotaChange) ([]policy.Policy, error) {
	made := make([]policy.Policy, len(qs))
	for i, q := range qs {
		if q.Was >= 0 && p.scopes[firstQuota+q.Was].quota.QuotaBytes == q.Bytes {
			continue
		}
		var err error
		if made[i], err = p.fresh(p.name, q.Bytes); err != nil {
			return nil, err
		}
	}
	return made, nil
}

// beginSetQuotas marks the spaces that change quotas; their entries are in the
// order of none until swapQuotas.
func (b *book) beginSetQuotas(qs []QuotaChange, under map[key.SpaceID]int) {
	b.policies.changingQuotas, b.spaces.moving = true, true
	for id, slot := range b.spaces.number {
		sp, to := b.spaces.slots.At(slot), scopeOf(under, id)
		stays := sp.quota == to && to == everything
		if to != everything {
			stays = sp.quota != everything && qs[to-firstQuota].Was == int(sp.quota)-firstQuota
		}
		sp.moving = !stays
	}
}

// scopeOf is the scope of a space's quota.
func scopeOf(under map[key.SpaceID]int, id key.SpaceID) uint32 {
	i, ok := under[id]
	if !ok {
		return everything
	}
	return uint32(i + firstQuota)
}

// swapQuotas puts the new quotas in place. Those that go on keep their policies.
func (b *book) swapQuotas(qs []QuotaChange, fresh []policy.Policy, under map[key.SpaceID]int) {
	old := b.policies.scopes
	b.policies.scopes = append(slices.Clone(old[:firstQuota]), make([]scope, len(qs))...)
	for i, q := range qs {
		r := &b.policies.scopes[firstQuota+i]
		if q.Was >= 0 {
			*r = old[firstQuota+q.Was]
			old[firstQuota+q.Was].policy = nil
		} else {
			b.policies.install(uint32(firstQuota+i), fresh[i])
		}
		r.quota.QuotaBytes, r.quota.UsedBytes = q.Bytes, 0
	}
	for _, r := range old[firstQuota:] {
		if r.policy != nil {
			b.policies.retired += r.policy.Steps()
		}
	}
	b.spaces.quotas, b.spaces.order = make(map[key.SpaceID]uint32, len(under)), nil
	for id := range under {
		b.spaces.assign(id, scopeOf(under, id))
	}
	b.spaces.moving = false
	for id, slot := range b.spaces.number {
		sp := b.spaces.slots.At(slot)
		sp.quota, sp.moving = b.spaces.quotas[id], false
		if sp.quota != everything {
			b.policies.scopes[sp.quota].quota.UsedBytes += sp.bytes
		}
	}
}
