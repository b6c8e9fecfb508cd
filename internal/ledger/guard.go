package ledger

import "github.com/kvstored/kvstored/internal/base"

// guard is what protects an entry. Few entries have one at a time, so it is
// not in the entry: 20 bytes, no pointers.
type guard struct {
	held   [classes]uint16 // owners that hold the entry, by class
	shield uint32          // kids that are protected
	fill   uint32          // while filling: the filler's record in holds
}

// guards gives an entry a guard as long as there is something in it. Guard 0
// is that of all the others, and stays empty.
type guards struct{ base.Pool[guard] }

// of returns the guard of e, to be read.
func (t *guards) of(e *entry) *guard { return t.At(e.guard) }

// make returns the guard of e, for something to be put in.
func (t *guards) make(e *entry) *guard {
	if e.guard == 0 {
		e.guard = t.Take()
	}
	return t.At(e.guard)
}

// tidy takes the guard of e back if nothing is in it any more.
func (t *guards) tidy(e *entry) {
	if e.guard != 0 && *t.At(e.guard) == (guard{}) {
		t.Give(e.guard)
		e.guard = 0
	}
}

// filled ends the fill of e and returns its filler's record, which is to be
// dropped next.
func (t *guards) filled(e *entry) (rec uint32) {
	g := t.of(e)
	rec, g.fill = g.fill, 0
	return rec
}

func (t *table) isHeld(e *entry) bool { return t.guards.of(e).held != [classes]uint16{} }

// protected says whether the entry's bytes count as protected. A hole has
// no bytes; an entry that is gone no longer carries its kids; and one that a tier below has
// need not be here to carry them.
func (t *table) protected(e *entry) bool {
	switch e.life {
	case filling:
		return true
	case resident:
		return e.guard != 0 && (e.mark&anyBelow == 0 || t.isHeld(e))
	case gone:
		return t.isHeld(e)
	}
	return false
}

// evictable is what the policy's ok answers. A change that turns it to true calls
// Policy.Allow.
func (t *table) evictable(e *entry) bool {
	return e.life == resident && e.kids == 0 && e.guard == 0
}
