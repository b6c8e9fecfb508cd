package ledger

import (
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
)

// Claim marks the resident ones of hs, chunks of a space, as claimed or not: claimed
// entries go after all others, the one used longest ago first. A claim protects
// nothing: a claimed entry is evicted where there is nothing else, by its quota, and once
// claimed entries occupy more than half of the tier. It ends with the residency.
func Claim(l *Ledger, space key.SpaceID, hs []key.Hash, claimed []bool) {
	l.mu.rounds(len(hs), func(b *book, from, to int) {
		for i, h := range hs[from:to] {
			b.claim(b.find(key.Key{Space: space, Hash: h}), claimed[from+i])
		}
	})
}

func (b *book) claim(id uint32, is bool) {
	e := b.entries.At(id)
	if e.life != resident || e.claimed == is {
		return
	}
	r := &b.policies.scopes[claims]
	if e.claimed = is; is {
		r.quota.UsedBytes += b.bytes(e)
		b.policies.add(claims, id)
		b.policies.offer(id)
		return
	}
	r.quota.UsedBytes -= b.bytes(e)
	r.policy.Remove(policy.ID(id))
	if b.evictable(e) {
		b.order.allow(id)
	}
}
