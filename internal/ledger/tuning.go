package ledger

import (
	"sync"

	"github.com/kvstored/kvstored/key"
)

// Tuning is what a ledger is told for good, also while it is used: its policy, its quotas,
// and which tiers below it can rely on.
type Tuning struct {
	mu        *locked
	switching sync.Mutex   // held by the SetPolicy or SetQuotas at work, before mu
	works     func() Below // see StackOn; nil for a tier with none below
}

// Tuning is how to change a ledger that is in use.
func (l *Ledger) Tuning() *Tuning { return &l.tuning }

// SetPolicy hands all entries over to another policy. The first to go
// goes first, as far as the new policy cares for order, and the touches an
// entry had, up to MaxHits, are repeated. Ghosts stay behind.
//
// The ledger is usable meanwhile: entries move 256 a lock round, in the old
// policy's own order, and each is in exactly one of the two. Entries that have
// moved are evicted before the others. Holds and their protection are not concerned.
// Calls wait for each other.
func (t *Tuning) SetPolicy(name string) error {
	t.switching.Lock()
	defer t.switching.Unlock()
	p := &t.mu.book.policies
	for r := range p.scopes { // only SetQuotas changes their number
		if r == claims {
			continue // always the one used longest ago
		}
		room := p.table.count.CapacityBytes
		if r != everything {
			room = p.scopes[r].quota.QuotaBytes // or these
		}
		to, err := p.fresh(name, room) // an unknown name is one at the first scope
		if err != nil {
			return err
		}
		handOver(t.mu, uint32(r), to)
	}
	b := t.mu.lock()
	defer t.mu.unlock()
	b.policies.name = name
	return nil
}

// Assign puts a space under quota i of Options: further calls for the space
// change nothing. That is forgotten only when the space has no entries, and
// after many others were assigned. All spaces under one quota share it. What the
// space has already counts from now on and joins the quota's own order of
// eviction, in the order in which it came, 4,096 entries a lock round.
func (t *Tuning) Assign(id key.SpaceID, i int) {
	slot, scope := uint32(noSpace), uint32(i+firstQuota)
	t.mu.round(func(b *book) {
		if b.spaces.quotas[id] != 0 {
			return
		}
		b.spaces.assign(id, scope)
		if slot = b.spaces.find(id); slot != noSpace { // it has entries
			sp := b.spaces.slots.At(slot)
			sp.quota = scope
			b.policies.scopes[scope].quota.UsedBytes += sp.bytes
		}
	})
	if slot == noSpace {
		return
	}
	t.mu.each(maxRound, func(b *book, at uint32, e *entry) {
		kept := b.spaces.slots.At(slot).id == id // else the space has lost all it had
		if kept && e.space == slot && e.life == resident && e.mark&inQuota == 0 {
			b.policies.joinQuota(at)
		}
	})
}

// StackOn lets the ledger evict entries with kids, where it finds nothing else: those that
// SetBelow said a tier has, of those that works returns. Call it before others
// use the ledger: evictions read it without a lock, and call works without locks. It keeps prompts whole as far as the tiers
// together are concerned, and so lets one be longer than this tier.
func (t *Tuning) StackOn(works func() Below) { t.works = works }
