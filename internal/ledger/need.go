package ledger

import "github.com/kvstored/kvstored/key"

// Need says of a resident chunk of a hybrid model whether a usable prefix needs it, or
// that this has changed. What none needs is dead, and goes before all that the policy of
// all would choose. Of a full group, whose prefixes end at some of its chunks only, k is
// such an end: a chunk is dead there where no end is at or below it. A chunk of a full group that was used since it
// came keeps the order of the policy: it shows where prompts part, and the next one that
// parts there makes an end of it. So does one that the policy knows to have been asked for
// again before it left the last time (policy.Leaver).
//
// That is forgotten with the entry. A k that is not resident is passed over.
func Need(l *Ledger, k key.Key, full, needed bool) {
	b := l.mu.lock()
	defer l.mu.unlock()
	id := b.find(k)
	e := b.entries.At(id)
	if e.life != resident {
		return
	}
	b.spaces.slots.At(e.space).bounds = full
	e.mark &^= ends
	switch {
	case needed:
		b.setCold(e, false)
		if full {
			e.mark |= ends
		}
	case !e.claimed && (!full || b.isSpent(e)) && !b.policies.proven(id):
		b.cool(id)
		b.released = true
	}
}

// isSpent reports whether no usable prefix ends at a resident chunk of a full group, or
// below it, and it was not used. A kid that goes asks for its parent.
func (t *table) isSpent(e *entry) bool {
	return e.life == resident && e.kids == 0 && e.mark&ends == 0 && e.mark/hit == 0 &&
		!e.claimed && t.spaces.slots.At(e.space).bounds
}

// Revive makes a chunk that is dead like any other: it was asked for.
func Revive(l *Ledger, k key.Key) {
	b := l.mu.lock()
	defer l.mu.unlock()
	b.setCold(b.entries.At(b.find(k)), false)
}
