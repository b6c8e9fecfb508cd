package ledger

// recency is what Publish owes the policies: that heads are younger than their tails.
type recency struct {
	table    *table
	policies *policies

	// pending is the next ancestor to renew after a Publish that ended with
	// tail; 0 for none.
	pending, tail uint32
}

// enlist hands ids to the policy in the order Publish promises.
func (r *recency) enlist(ids []ID) {
	first, last := uint32(ids[0]), uint32(ids[len(ids)-1])
	if r.tail == 0 || r.table.entries.At(first).parent != r.tail {
		r.renewPending()
	}
	r.tail = 0
	steps := 2 * maxRound // a batch that is no chain must not walk to the root once per entry
	for i := len(ids) - 1; i >= 0; i-- {
		if r.table.entries.At(uint32(ids[i])).life != filling {
			continue // a kid of it came by
		}
		if r.climb(uint32(ids[i]), first, &steps) && i == len(ids)-1 {
			r.tail = last
		}
	}
	r.pending = r.table.entries.At(first).parent
}

// climb adds or renews the entries from id to first, or toward the root if
// first is not on the way, and reports whether it met first.
func (r *recency) climb(id, first uint32, steps *int) bool {
	for id != 0 {
		e := r.table.entries.At(id)
		switch {
		case e.life == filling && e.mark&publishing != 0:
			e.mark &^= publishing
			e.life = resident
			r.table.count.Filling--
			r.table.countResident(e, 1)
			r.policies.join(id)
		case e.life == resident && *steps > 0:
			*steps--
			r.policies.renew(id)
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
func (r *recency) unchain(id, parent uint32) {
	if r.pending == id {
		r.pending = parent
	}
	if r.tail == id {
		r.tail = 0
	}
}

// renewPending makes up for ancestors that are still to be renewed, 4,096 a call.
func (r *recency) renewPending() {
	if r.policies.scopes[everything].renewer == nil { // recency has no part in its order
		r.pending = 0
	}
	for range maxRound {
		if r.pending == 0 {
			return
		}
		e := r.table.entries.At(r.pending)
		if e.life != resident {
			r.pending = 0
			return
		}
		r.policies.renew(r.pending)
		r.pending = e.parent
	}
}
