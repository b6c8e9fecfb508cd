package ledger

import "github.com/kvstored/kvstored/key"

// Below is a set of tiers below a ledger's: a bit for each, maxBelow at most.
type Below uint8

const (
	maxBelow = 4
	anyBelow = below<<maxBelow - below
)

func (s Below) mark() mark { return mark(s) * below & anyBelow }

// SetBelow says whether the tiers of a set have k. That is forgotten with the
// entry. A k that is not resident is passed over.
//
// What a tier below has is protected only while it is held, not because
// something stands on it, whether that tier works or not; and it is evicted
// for want of anything else only if it does.
func (l *Ledger) SetBelow(k key.Key, tiers Below, have bool) {
	b := l.mu.lock()
	defer l.mu.unlock()
	id := b.find(k)
	e := b.entries.At(id)
	if e.life != resident {
		return
	}
	was := b.protected(e)
	e.mark &^= tiers.mark()
	if have {
		e.mark |= tiers.mark()
	}
	switch now := b.protected(e); {
	case was && !now:
		b.unprotect(id)
	case !was && now:
		b.protect(id)
	default:
		b.policies.offer(id)
	}
}

// evictableInterior says whether e may go although it has kids.
func (t *table) evictableInterior(e *entry) bool {
	return e.life == resident && e.kids > 0 && e.mark&anyBelow != 0 && !t.isHeld(e)
}

// offer puts an entry that may go although it has kids into the lines of its
// scopes, unless it is there. A change that makes evictableInterior true calls it. Clients
// let go of a prompt from its root on, so that is the order in which it goes:
// in the order of reading.
func (p *policies) offer(id uint32) {
	e := p.table.entries.At(id)
	if !p.table.evictableInterior(e) {
		return
	}
	p.inScopes(e, func(r *scope) {
		if r.interior.push(id) {
			e.mark &^= used
		}
	})
}

// interiorLook is how many entries a victim puts back that might go: used since
// they were let go of, or in a tier that does not work.
const interiorLook = 64

// nextInterior takes out what may go although it has kids. What may not any more
// is dropped on the way: it was put there once for that. It finds nothing, and
// leaves no stale, where that would make the lock round too long. In the scope of all it
// passes over claimed entries.
func (o *order) nextInterior(r uint32, works mark) (id uint32, found bool) {
	if works == 0 {
		return 0, false
	}
	q := &o.policies.scopes[r].interior
	for looked := 0; q.n > 0 && looked < 2*interiorLook; {
		id := q.pop()
		e := o.table.entries.At(id)
		switch {
		case !o.table.evictableInterior(e) || !o.policies.has(r, e):
			if o.stale--; o.stale == 0 {
				return 0, false
			}
			continue
		case e.claimed && r == everything:
		case e.mark&works == 0:
		case looked >= interiorLook || e.mark&used == 0:
			o.policies.remove(id)
			return id, true
		default:
			e.mark &^= used // it has another turn for that
		}
		looked++
		q.push(id)
	}
	return 0, false
}
