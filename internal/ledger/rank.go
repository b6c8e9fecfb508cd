package ledger

import "github.com/kvstored/kvstored/policy"

// rank is one order in which entries go: that of all entries, or that of the
// entries under one quota, which are in both.
type rank struct {
	policy  policy.Policy
	planner planner // the same, if it wants to be told of requests
	silent  bool    // it is told of nothing else: neither of touches nor of what comes
	under   line    // what may go though others stand on it

	quota    QuotaStats // of the second kind
	priority uint8      // the same
}

// everything is the rank of all entries; those of quotas follow.
const everything = 0

// introduce tells a new policy whom to ask.
func (b *book) introduce(p policy.Policy) {
	if p, ok := p.(policy.Asker); ok {
		p.Ask(func(id policy.ID) policy.Meta { return b.told(b.entries.at(uint32(id))) })
	}
}

// told is what a policy is told of an entry, but for what only planners want
// to know.
func (b *book) told(e *entry) policy.Meta {
	return policy.Meta{Hash: b.hash(e.space, e.hash), Size: b.bytes(e)}
}

// meta is told, with what planners want to know.
func (b *book) meta(e *entry) policy.Meta {
	m := b.told(e)
	m.Uses = uint8(e.mark / hit)
	if e.parent != 0 {
		m.Parent = b.hash(e.space, b.entries.at(e.parent).hash)
	}
	return m
}

// inRanks calls do with each rank that has the resident entry e.
func (b *book) inRanks(e *entry, do func(*rank)) {
	do(&b.ranks[everything])
	if e.mark&quoted != 0 {
		do(&b.ranks[b.spaces.slots.at(e.space).quota])
	}
}

// rankAdmit announces the filling entry e, before any victim goes for it.
func (b *book) rankAdmit(e *entry) {
	b.ranks[everything].admit(b.hash(e.space, e.hash), b.bytes(e))
	if sp := b.spaces.slots.at(e.space); sp.quota != 0 && !sp.moving {
		b.ranks[sp.quota].admit(b.hash(e.space, e.hash), b.bytes(e))
	}
}

func (r *rank) admit(hash uint64, size int64) {
	if !r.silent {
		r.policy.Admit(hash, size)
	}
}

// rankAdd makes the entry a candidate.
func (b *book) rankAdd(id uint32) {
	e := b.entries.at(id)
	b.ranks[everything].policy.Add(policy.ID(id), b.meta(e))
	if sp := b.spaces.slots.at(e.space); sp.quota != 0 && !sp.moving {
		b.quote(id)
	}
}

// quote adds a resident entry to the rank of its quota.
func (b *book) quote(id uint32) {
	e := b.entries.at(id)
	e.mark |= quoted
	b.ranks[b.spaces.slots.at(e.space).quota].policy.Add(policy.ID(id), b.meta(e))
	b.offer(id)
}

func (b *book) rankTouch(id uint32) {
	b.inRanks(b.entries.at(id), func(r *rank) {
		if !r.silent {
			r.policy.Touch(policy.ID(id))
		}
	})
}

// rankRenew makes the entry as young as one just used. It is no use.
func (b *book) rankRenew(id uint32) {
	b.inRanks(b.entries.at(id), func(r *rank) {
		if p, ok := r.policy.(policy.Renewer); ok {
			p.Renew(policy.ID(id))
		}
	})
}

// renews reports whether rankRenew does anything.
func (b *book) renews() bool {
	_, ok := b.ranks[everything].policy.(policy.Renewer)
	return ok
}

func (b *book) rankAllow(id uint32) {
	b.inRanks(b.entries.at(id), func(r *rank) { r.policy.Allow(policy.ID(id)) })
}

func (b *book) rankRemove(id uint32) {
	e := b.entries.at(id)
	b.inRanks(e, func(r *rank) { r.policy.Remove(policy.ID(id)) })
	e.mark &^= quoted
}

// rankEvict takes out the next victim of rank r. That of everything spares
// some of what has a priority; a quota is kept whatever that is.
func (b *book) rankEvict(r uint32) (id uint32, ok bool) {
	if r == everything {
		if id, ok := b.nextCold(); ok {
			b.rankRemove(id)
			return id, true
		}
	}
	victim, ok := b.ranks[r].policy.Evict(b.ok)
	for n := 0; ok && n < maxSpared && r == everything && b.spare(uint32(victim)); n++ {
		victim, ok = b.ranks[r].policy.Evict(b.ok)
	}
	if !ok {
		return 0, false
	}
	id = uint32(victim)
	e := b.entries.at(id)
	switch {
	case r != everything:
		b.ranks[everything].policy.Remove(victim)
	case e.mark&quoted != 0:
		b.ranks[b.spaces.slots.at(e.space).quota].policy.Remove(victim)
	}
	e.mark &^= quoted
	return id, true
}

// steps is what all policies there have been inspected.
func (b *book) steps() (n uint64) {
	for i := range b.ranks {
		n += b.ranks[i].policy.Steps()
	}
	return n + b.retired
}
