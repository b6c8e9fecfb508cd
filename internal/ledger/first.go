package ledger

import "github.com/kvstored/kvstored/key"

// nextCold takes out the next of the entries that go before any that a policy would
// choose: the ends of prompts that a client has said will not be asked for
// again, and what no usable prefix needs (see Need). They are in a line, in which some
// are not cold any more. One that may not go now leaves the line, and is put into it again
// when it may: so each is looked at once for that.
func (o *order) nextCold() (id uint32, found bool) {
	for range min(o.cold.n, maxRound) {
		id := o.cold.pop()
		o.looked++
		if e := o.table.entries.At(id); e.mark&cooled != 0 && !e.claimed && o.table.evictable(e) {
			return id, true
		}
	}
	return 0, false
}

// requeueCold puts those of ids that go first into the line again, unless one has gone.
func (o *order) requeueCold(ids []uint32) {
	for _, id := range ids {
		if id != 0 && o.table.entries.At(id).mark&cooled != 0 {
			o.cold.push(id)
		}
	}
}

// MarkCold makes the own end of a chain the first to go, as MADV_COLD does with
// pages: its chunks up to the last one that others hang on, too. A use makes a
// chunk like any other again.
func (l *Ledger) MarkCold(space key.SpaceID, hs []key.Hash) {
	b := l.mu.lock()
	defer l.mu.unlock()
	b.eachOwn(space, hs, b.cool)
}

// Cool is MarkCold for chunks that may be claimed: here their claims end. What other chains
// have too stays claimed.
func Cool(l *Ledger, space key.SpaceID, hs []key.Hash) {
	b := l.mu.lock()
	defer l.mu.unlock()
	b.eachOwn(space, hs, func(id uint32) {
		b.claim(id, false)
		b.cool(id)
	})
}

func (b *book) cool(id uint32) {
	e := b.entries.At(id)
	if b.setCold(e, true); b.evictable(e) {
		b.order.cold.push(id)
	}
}

// setCold marks a resident entry, and keeps the count.
func (t *table) setCold(e *entry, is bool) {
	if is == (e.mark&cooled != 0) {
		return
	}
	e.mark ^= cooled
	n := t.bytes(e)
	if !is {
		n = -n
	}
	t.count.ColdBytes += n
	t.spaces.slots.At(e.space).cold += n
}

// eachOwn calls do for the resident chunks that are a chain's alone, the last one first.
func (b *book) eachOwn(space key.SpaceID, hs []key.Hash, do func(id uint32)) {
	hs = hs[:min(len(hs), maxRound)]
	own := b.ownFrom(space, hs)
	for i := len(hs) - 1; i >= own; i-- {
		id := b.find(key.Key{Space: space, Hash: hs[i]})
		if id != 0 && b.entries.At(id).life == resident {
			do(id)
		}
	}
}

// ownFrom returns which chunks of a chain are its own: from the number on,
// none has a kid here that is not of the chain.
func (t *table) ownFrom(space key.SpaceID, hs []key.Hash) int {
	below := uint32(0)
	for i := len(hs) - 1; i >= 0; i-- {
		id := t.find(key.Key{Space: space, Hash: hs[i]})
		e := t.entries.At(id)
		others := e.kids
		if id != 0 && below != 0 && t.entries.At(below).parent == id {
			others--
		}
		if id != 0 && others > 0 {
			return i + 1
		}
		below = 0
		if life := e.life; life == filling || life == resident {
			below = id
		}
	}
	return 0
}

// DropBehind makes a run of a prompt that is longer than the tier go before what a
// policy would choose, in the order of the prompt: it was read or stored, and is
// not asked for again before all the rest of the prompt has come by, for which
// nothing of other prompts need go then. It goes once a tier below has it. A
// chunk that another prompt hangs on, too, is left alone, and one that is used
// again is like any other. Where a policy plans, DropBehind does nothing.
func (l *Ledger) DropBehind(space key.SpaceID, hs []key.Hash) {
	l.mu.rounds(len(hs), func(b *book, from, to int) {
		for _, h := range hs[from:to] {
			id := b.find(key.Key{Space: space, Hash: h})
			if e := b.entries.At(id); e.life == resident && e.kids <= 1 && !b.policies.scopes[everything].silent {
				e.mark |= dropBehind
				b.order.dropBehind.push(id)
				b.released = true // it may go now
			}
		}
	})
}

// dropBehindLook is how many entries of the line of DropBehind a victim looks at.
const dropBehindLook = 8

// nextDropBehind takes out the next entry on the line of DropBehind that a working tier
// below has, and that may go: as a leaf, or as an interior entry. An entry that
// may not go yet is put at the back. To a quota DropBehind is nothing.
func (o *order) nextDropBehind(r uint32, works mark) (id uint32, found bool) {
	if r != everything {
		return 0, false
	}
	for range min(dropBehindLook, o.dropBehind.n) {
		id := o.dropBehind.pop()
		e := o.table.entries.At(id)
		switch {
		case e.mark&dropBehind == 0:
		case e.mark&works != 0 && (o.table.evictable(e) || o.table.evictableInterior(e)):
			o.policies.remove(id)
			return id, true
		default:
			o.dropBehind.push(id)
		}
	}
	return 0, false
}
