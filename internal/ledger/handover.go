package ledger

import (
	"github.com/kvstored/kvstored/policy"
)

// handOverRound is how many entries change policies under one lock. With up
// to MaxHits touches each it takes about 100 µs.
const handOverRound = 256

// PolicyName is what package policy calls the present policy.
func (l *Ledger) PolicyName() string {
	b := l.mu.lock()
	defer l.mu.unlock()
	return b.policies.name
}

// handOver replaces the policy of one scope. What the old one set aside as
// refused is allowed first, because it would not say where it is otherwise;
// the entries it is made to refuse again meanwhile are looked up by number at the end.
func handOver(l *locked, r uint32, to policy.Policy) {
	h := &handover{to: to}
	l.round(func(b *book) {
		h.from = b.policies.scopes[r].policy
		_, h.fromPlans = h.from.(policy.Planner)
		_, h.toPlans = h.to.(policy.Planner)
		b.policies.install(r, h)
	})
	l.eachIn(r, func(_ *book, id policy.ID) { h.Allow(id) })
	for !h.closed {
		l.round(h.round)
	}
	l.eachIn(r, func(b *book, id policy.ID) {
		if !h.moved.has(id) {
			h.from.Remove(id)
			h.take(b, id)
		}
	})
	l.round(func(b *book) {
		b.policies.retired += h.from.Steps()
		b.policies.install(r, to)
	})
}

// round moves the next entries, if there are any.
func (h *handover) round(b *book) {
	for range handOverRound {
		id, ok := h.from.Evict(func(policy.ID) bool { return true })
		if !ok {
			h.closed = true
			return
		}
		h.take(b, id)
	}
}

// handover is a policy whose entries are on their way from one policy to
// another.
type handover struct {
	from, to policy.Policy
	moved    idSet // the IDs that to has
	closed   bool  // what is added goes to to

	fromPlans, toPlans bool
}

// take adds to to what from has given up.
func (h *handover) take(b *book, id policy.ID) {
	e := b.entries.At(uint32(id))
	m := b.policies.meta(e, h.toPlans)
	h.to.Add(id, m)
	if !h.toPlans { // the others know uses from touches
		for range m.Uses {
			h.to.Touch(id)
		}
	}
	h.moved.set(id)
}

func (h *handover) of(id policy.ID) policy.Policy {
	if h.moved.has(id) {
		return h.to
	}
	return h.from
}

// newcomers is where a new entry goes: as long as from has older ones it
// joins them, so that it moves after them.
func (h *handover) newcomers() policy.Policy {
	if h.closed {
		return h.to
	}
	return h.from
}

// plans reports whether either policy wants to be told of requests.
func (h *handover) plans() bool { return h.fromPlans || h.toPlans }

// silent reports whether a policy is told of requests, and so of nothing else.
func (h *handover) silent(p policy.Policy) bool {
	return p == h.to && h.toPlans || p == h.from && h.fromPlans
}

// Observe tells the policies that plan.
func (h *handover) Observe(r policy.Request) {
	for _, p := range []policy.Policy{h.from, h.to} {
		if h.silent(p) {
			p.(policy.Planner).Observe(r)
		}
	}
}

// Advise tells the policies that plan.
func (h *handover) Advise(chain []uint64, hint policy.Hint, from int) {
	for _, p := range []policy.Policy{h.from, h.to} {
		if h.silent(p) {
			p.(policy.Planner).Advise(chain, hint, from)
		}
	}
}

// Admit asks the policy that new entries go to, if that one plans.
func (h *handover) Admit(hash, parent uint64) bool {
	p, plans := h.newcomers().(policy.Planner)
	return !plans || p.Admit(hash, parent)
}

// Seen asks the policy that new entries go to, if that one plans.
func (h *handover) Seen(hash uint64) bool {
	p, plans := h.newcomers().(policy.Planner)
	return !plans || p.Seen(hash)
}

func (h *handover) Miss(hash uint64, size int64) {
	if p := h.newcomers(); !h.silent(p) {
		p.Miss(hash, size)
	}
}

func (h *handover) Add(id policy.ID, m policy.Meta) {
	h.newcomers().Add(id, m)
	if h.closed {
		h.moved.set(id)
	}
}

func (h *handover) Touch(id policy.ID) {
	if p := h.of(id); !h.silent(p) {
		p.Touch(id)
	}
}

// Renew implements policy.Renewer, in case one of the two does.
func (h *handover) Renew(id policy.ID) {
	if p, ok := h.of(id).(policy.Renewer); ok {
		p.Renew(id)
	}
}

func (h *handover) Allow(id policy.ID) { h.of(id).Allow(id) }

func (h *handover) Remove(id policy.ID) {
	h.of(id).Remove(id)
	h.moved.clear(id)
}

func (h *handover) Evict(ok func(policy.ID) bool) (policy.ID, bool) {
	if id, found := h.to.Evict(ok); found {
		h.moved.clear(id)
		return id, true
	}
	return h.from.Evict(ok)
}

func (h *handover) Steps() uint64 { return h.from.Steps() + h.to.Steps() }

// idSet is a set of IDs.
type idSet []uint64

func (b idSet) has(id policy.ID) bool {
	return int(id/64) < len(b) && b[id/64]&(1<<(id%64)) != 0
}

func (b *idSet) set(id policy.ID) {
	for len(*b) <= int(id/64) {
		*b = append(*b, 0)
	}
	(*b)[id/64] |= 1 << (id % 64)
}

func (b idSet) clear(id policy.ID) {
	if b.has(id) {
		b[id/64] &^= 1 << (id % 64)
	}
}
