package ledger

// An entry is protected if it is filling, held, or has a protected kid and no
// tier below has it. Each protected entry counts once in its parent's shield,
// so that a change travels toward the root only as far as it changes something:
// holding a chain of n costs n steps, not n².

// protect follows up on an entry that has just become protected.
func (b *book) protect(id uint32) {
	for {
		e := b.entries.At(id)
		b.count.ProtectedBytes += b.bytes(e)
		id = e.parent
		if id == 0 {
			return
		}
		p := b.entries.At(id)
		was := b.protected(p)
		b.guards.make(p).shield++
		if was || !b.protected(p) {
			return
		}
	}
}

// unprotect follows up on a resident entry that has just ceased to be protected.
func (b *book) unprotect(id uint32) {
	for {
		e := b.entries.At(id)
		b.count.ProtectedBytes -= b.bytes(e)
		b.released = true
		if b.evictable(e) {
			b.order.allow(id)
		}
		b.policies.offer(id)
		id = e.parent
		if id == 0 {
			return
		}
		p := b.entries.At(id)
		was := b.protected(p)
		b.unshield(p)
		if !was || b.protected(p) {
			return
		}
	}
}

// unshield takes note that a protected kid is one no more.
func (t *table) unshield(p *entry) {
	t.guards.of(p).shield--
	t.guards.tidy(p)
}

// exposed is what would be protected besides a kid of id if that became it.
func (t *table) exposed(id uint32) (sum int64) {
	for id != 0 {
		e := t.entries.At(id)
		if e.life != resident || t.protected(e) || e.mark&anyBelow != 0 {
			break
		}
		sum += t.bytes(e)
		id = e.parent
	}
	return sum
}

// unlink takes id from its parent, which may become evictable or, as a hole,
// pointless. It leaves id's own bytes to the caller.
func (b *book) unlink(id uint32) {
	e := b.entries.At(id)
	b.recency.unchain(id, e.parent)
	up, was := e.parent, b.protected(e)
	if up == 0 {
		return
	}
	e.parent = 0
	p := b.entries.At(up)
	before := b.protected(p)
	p.kids--
	if was {
		b.unshield(p)
	}
	if e.mark&(cooled|ends) != 0 && b.isSpent(p) && !b.policies.proven(up) {
		b.setCold(p, true) // allow puts it into the line
	}
	switch {
	case p.life == hole && p.kids == 0:
		b.dropHole(up)
	case p.life == gone && p.kids == 0:
		b.unindex(up)
	case before && !b.protected(p):
		b.unprotect(up)
	case b.evictable(p):
		b.released = true
		b.order.allow(up)
	}
}
