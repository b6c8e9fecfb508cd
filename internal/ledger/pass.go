package ledger

import "github.com/kvstored/kvstored/key"

// Pass makes a run of a prompt that is longer than the tier go before what a
// policy would choose, in the order of the prompt: it was read or stored, and is
// not asked for again before all the rest of the prompt has come by, for which
// nothing of other prompts need go then. It goes once a tier below has it. A
// chunk that another prompt hangs on, too, is left alone, and one that is used
// again is like any other. Where a policy plans, Pass does nothing.
func (l *Ledger) Pass(space key.SpaceID, hs []key.Hash) {
	rounds(l, hs, func(b *book, _ int, some []key.Hash) {
		for _, h := range some {
			id := b.find(key.Key{Space: space, Hash: h})
			if e := b.entries.at(id); e.life == resident && e.kids <= 1 && !b.order.scopes[everything].silent {
				e.mark |= passed
				b.order.passing.push(id)
				b.released = true // it may go now
			}
		}
	})
}

// passLook is how many entries of the line of Pass a victim looks at.
const passLook = 8

// nextPassed takes out the next entry on the line of Pass that a working tier
// below has, and that may go: as a leaf, or from underneath others. An entry that
// may not go yet is put at the back. To a quota Pass is nothing.
func (o *order) nextPassed(r uint32, works mark) (id uint32, found bool) {
	if r != everything {
		return 0, false
	}
	for range min(passLook, o.passing.n) {
		id := o.passing.pop()
		e := o.entries.at(id)
		switch {
		case e.mark&passed == 0:
		case e.mark&works != 0 && (o.evictable(e) || o.underneath(e)):
			o.remove(id)
			return id, true
		default:
			o.passing.push(id)
		}
	}
	return 0, false
}
