package ledger

import "github.com/kvstored/kvstored/key"

// Evict takes out the policy's next victim: a resident entry that is not
// held and that has no kid, resident or filling, in this ledger. If there is
// none it is one that only is interior, and that a working tier
// below has; see StackOn. It cannot be found any more; its bytes count as used
// until the caller, having let go of what the Value names, calls Free. False
// means that everything is protected.
func (l *Ledger) Evict() (Entry, bool) {
	return l.evictFirst(func(b *book, works mark) (Entry, bool) { return b.evict(everything, works, false) })
}

// EvictSafely is Evict for one who can wait: it rather takes nothing than what
// would be lost because those who write to the tiers below, of which one works,
// have no room for more yet. See Released. A victim that they are to write is
// Charged already: between two calls others would take the room. Who writes it,
// or does not, ends that with Uncharge.
func (l *Ledger) EvictSafely() (Entry, bool) {
	return l.evictFirst(func(b *book, works mark) (Entry, bool) { return b.evict(everything, works, true) })
}

// evictFirst asks whether the tiers below work without the lock. It takes the
// lock again while a round ends because of stale entries in the lines.
func (l *Ledger) evictFirst(evict func(*book, mark) (Entry, bool)) (e Entry, ok bool) {
	works := mark(0)
	if l.tuning.works != nil {
		works = l.tuning.works().mark()
	}
	for more := true; more && !ok; {
		l.mu.round(func(b *book) {
			b.order.stale = maxRound
			e, ok = evict(b, works)
			more = b.order.stale == 0
		})
	}
	return e, ok
}

// evict takes out the next victim of scope r. Without one, the ID of the entry is that of
// a leaf which would be lost, if there is any.
func (b *book) evict(r uint32, works mark, safely bool) (Entry, bool) {
	b.recency.renewPending()
	id, ok := b.choose(r, works, safely)
	if !ok {
		return Entry{ID: ID(id)}, false
	}
	e := b.entries.At(id)
	v, n := b.snapshot(id), b.bytes(e)
	b.count.Evictions++
	b.count.EvictedBytes += uint64(n)
	if v.Hits == 0 {
		b.count.EvictedUnused++
		b.count.EvictedUnusedBytes += uint64(n)
	}
	v.Charged = safely && works != 0 && v.Dirty && !b.isLost(e)
	b.endResidency(id)
	if v.Charged {
		b.budgets.charge(Daemon, Unwritten, n)
	}
	return v, true
}

// maxBack is how many leaves are put back for one victim.
const maxBack = 16

// choose takes a victim out of its scopes. A leaf that would be lost is put back
// as if it had just come if something may go as an interior entry, or safely
// while a tier below works; then others have their turn, maxBack at most. Without a
// victim id is one that was put back, or 0.
func (b *book) choose(r uint32, works mark, safely bool) (id uint32, ok bool) {
	if id, ok := b.order.nextDropBehind(r, works); ok {
		return id, true
	}
	keep := safely && works != 0
	var back [maxBack]uint32 // those put back; they stand in the cold line only when the others have had their turn
	defer func() { b.order.requeueCold(back[:]) }()
	for i := range maxBack {
		leaf, other := b.order.nextOf(r, works, b.isLost)
		ok, found := leaf != 0, other != 0
		if ok && !b.isLost(b.entries.At(leaf)) {
			return leaf, true
		}
		later := !found && b.order.stale == 0 // another round will tell
		if ok && (found || keep || later) {
			b.policies.join(leaf)
			back[i] = leaf
		}
		switch {
		case later:
			return 0, false
		case found:
			return other, true
		case !ok || !keep:
			return leaf, ok
		}
	}
	return back[0], false
}

// nextOf takes out the next leaf of a scope and, where there is none or it would be
// lost, what may go as an interior entry; 0 for none. Claimed entries have their
// turn where there is nothing else, or too many are claimed.
func (o *order) nextOf(r uint32, works mark, lost func(*entry) bool) (leaf, other uint32) {
	if r == everything && o.policies.exceeded(claims) {
		if id, ok := o.next(claims); ok && !lost(o.table.entries.At(id)) {
			return id, 0
		} else if ok {
			o.policies.join(id)
		}
	}
	leaf, ok := o.next(r)
	if ok && !lost(o.table.entries.At(leaf)) {
		return leaf, 0
	}
	other, found := o.nextInterior(r, works)
	if !ok && !found && r == everything && o.stale > 0 { // else others may be found in the next round
		return o.nextOf(claims, works, lost)
	}
	return leaf, other
}

// isLost says whether an entry that goes is lost: the tiers below lack it, and
// those who would write it have no room for more.
func (b *book) isLost(e *entry) bool {
	n := b.bytes(e)
	return e.mark&dirty != 0 && b.budgets.fits(Daemon, Unwritten, growth{0, n, n}) != nil
}

// Remove takes out a resident key whether or not it has kids or is held. Kids
// stay, below a hole that heals when the key is stored again. The bytes of a
// held entry count as used and protected until its last Unhold. The caller
// calls Free as after Evict. False means that k was not resident.
func (l *Ledger) Remove(k key.Key) (Entry, bool) {
	b := l.mu.lock()
	defer l.mu.unlock()
	id := b.find(k)
	if id == 0 || b.entries.At(id).life != resident {
		return Entry{}, false
	}
	b.recency.renewPending()
	v := b.snapshot(id)
	b.policies.remove(id)
	b.endResidency(id)
	return v, true
}

// Free ends an entry that Evict or Remove returned.
func (l *Ledger) Free(id ID) {
	b := l.mu.lock()
	defer l.mu.unlock()
	e := b.entries.At(uint32(id))
	if e.life != gone || e.mark&freed != 0 {
		b.broken(uint32(id), "is freed, and was not evicted or removed")
		return
	}
	e.mark |= freed
	if !b.isHeld(e) {
		b.reclaim(uint32(id))
	}
}

// endResidency ends the residency of an entry that the policy has forgotten.
func (b *book) endResidency(id uint32) {
	e := b.entries.At(id)
	was, n := b.protected(e), b.bytes(e)
	b.unlink(id)
	if e.claimed {
		b.policies.scopes[claims].quota.UsedBytes -= n
		e.claimed = false
	}
	b.setCold(e, false)
	e.life = gone
	e.mark &^= fresh | dropBehind | ends // not dirty: a writer may take the entry over
	b.countResident(e, -1)
	if !b.isHeld(e) {
		b.leave(e)
		if was {
			b.count.ProtectedBytes -= n
		}
	}
	if e.kids == 0 {
		b.unindex(id)
	}
}

// reclaim gives back the bytes of an entry that is gone, once it was freed and is not
// held, and its number unless kids still need it as a hole.
func (b *book) reclaim(id uint32) {
	e := b.entries.At(id)
	if e.mark&freed == 0 {
		return
	}
	b.count.LeavingBytes -= b.bytes(e)
	b.count.UsedBytes -= b.bytes(e)
	b.released = true
	if e.kids > 0 {
		b.makeHole(id)
	} else {
		b.recycle(id)
	}
}
