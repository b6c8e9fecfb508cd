package ledger

import "slices"

// Publish makes filling entries resident and gives back their charges. ids is
// one chain in prefix order, gaps allowed. The policy gets the new entries
// tail first and then renews their resident ancestors toward the root, so that
// a head is always younger than its tail; the request for those has touched
// them, and that counts once.
//
// Renewing the ancestors is put off until another call uses the policy; a
// Publish that goes on where the one before ended takes it over. So a long
// chain published in many calls costs one step a chunk, not a walk to the
// root each time. One lock round walks at most 4,096 ancestors, and none for
// policies in which recency has no part.
func (l *Ledger) Publish(ids []ID, dirty bool) {
	rounds(&l.mu, ids, func(b *book, _ int, some []ID) { b.publish(some, dirty, nil) })
}

// PublishHeld is Publish, and o holds the longest leading run of ids in class
// c that the budgets admit, with no moment between fill and hold: n entries.
// All of ids are resident afterwards; err says why n is smaller. They came to
// be used at once: the next touch of each is that use and counts no other.
func (l *Ledger) PublishHeld(o Owner, c Class, ids []ID, dirty bool) (n int, err error) {
	rounds(&l.mu, ids, func(b *book, _ int, some []ID) {
		b.publish(some, dirty, func(id uint32) {
			if err != nil {
				return
			}
			if err = b.hold(o, c, id); err == nil {
				n++
			}
		})
	})
	return n, err
}

// publish publishes ids of one round. keep, if any, is called for each
// in prefix order while the fill still protects it.
func (b *book) publish(ids []ID, isDirty bool, keep func(id uint32)) {
	for i := 0; i < len(ids); i++ {
		if !b.isFilling(uint32(ids[i])) {
			ids = slices.Concat(ids[:i], ids[i+1:])
			i--
			continue
		}
		e := b.entries.At(uint32(ids[i]))
		e.mark = publishing
		b.setDirty(e, isDirty)
	}
	if len(ids) == 0 {
		return
	}
	b.order.enlist(ids)
	for _, id := range ids {
		e := b.entries.At(uint32(id))
		fill := b.guards.filled(e)
		if keep != nil {
			e.mark |= fresh
			keep(uint32(id))
		}
		if b.budgets.drop(fill) && !b.protected(e) { // it is given back once keep had the chance to hold
			b.unprotect(uint32(id))
		}
	}
}

// enlist hands ids to the policy in the order Publish promises.
func (o *order) enlist(ids []ID) {
	first, last := uint32(ids[0]), uint32(ids[len(ids)-1])
	if o.tail == 0 || o.entries.At(first).parent != o.tail {
		o.renewPending()
	}
	o.tail = 0
	steps := 2 * maxRound // a batch that is no chain must not walk to the root once per entry
	for i := len(ids) - 1; i >= 0; i-- {
		if o.entries.At(uint32(ids[i])).life != filling {
			continue // a kid of it came by
		}
		if o.climb(uint32(ids[i]), first, &steps) && i == len(ids)-1 {
			o.tail = last
		}
	}
	o.pending = o.entries.At(first).parent
}

// climb adds or renews the entries from id to first, or toward the root if
// first is not on the way, and reports whether it met first.
func (o *order) climb(id, first uint32, steps *int) bool {
	for id != 0 {
		e := o.entries.At(id)
		switch {
		case e.life == filling && e.mark&publishing != 0:
			e.mark &^= publishing
			e.life = resident
			o.count.Filling--
			o.countResident(e, 1)
			o.join(id)
		case e.life == resident && *steps > 0:
			*steps--
			o.renew(id)
		default:
			return false
		}
		if id == first {
			return true
		}
		id = e.parent
	}
	return false
}

// unchain has renewPending, and a Publish that goes on, do without an entry that
// is about to lose its parent.
func (o *order) unchain(id, parent uint32) {
	if o.pending == id {
		o.pending = parent
	}
	if o.tail == id {
		o.tail = 0
	}
}

// renewPending makes up for ancestors that are still to be renewed, 4,096 a call.
func (o *order) renewPending() {
	if o.pending != 0 && !o.renews() {
		o.pending = 0
	}
	for range maxRound {
		if o.pending == 0 {
			return
		}
		e := o.entries.At(o.pending)
		if e.life != resident {
			o.pending = 0
			return
		}
		o.renew(o.pending)
		o.pending = e.parent
	}
}
