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
	l.mu.rounds(len(ids), func(b *book, from, to int) { b.publish(ids[from:to], dirty, nil) })
}

// PublishHeld is Publish, and o holds the longest leading run of ids in class
// c that the budgets admit, with no moment between fill and hold: n entries.
// All of ids are resident afterwards; err says why n is smaller. They came to
// be used at once: the next touch of each is that use and counts no other.
func (l *Ledger) PublishHeld(o Owner, c Class, ids []ID, dirty bool) (n int, err error) {
	l.mu.rounds(len(ids), func(b *book, from, to int) {
		b.publish(ids[from:to], dirty, func(id uint32) {
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
		if e.mark = publishing; isDirty {
			e.mark |= dirty
		}
	}
	if len(ids) == 0 {
		return
	}
	b.recency.enlist(ids)
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
