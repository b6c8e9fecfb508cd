package ledger

import (
	"cmp"
	"sync/atomic"

	"github.com/kvstored/kvstored/policy"
)

// policies are the orders in which entries go, one a scope, and what these are
// told of entries. Which of them is asked for a victim is the order's to say.
type policies struct {
	table          *table
	scopes         []scope              // of everything, of what is claimed, then of each quota
	name           string               // what package policy calls them
	later          bool                 // see Options.DeferTraining
	leaf, ok       func(policy.ID) bool // any that may go; what the policy of all may name
	retired        uint64               // steps of policies that were replaced
	changingQuotas bool                 // no quota is enforced; see SetQuotas
	plans          atomic.Bool          // that of everything does; to be read without the lock
}

// init installs the policies. The policies of quotas are of the kind of opt.Policy.
func (p *policies) init(t *table, opt Options) {
	p.table, p.later = t, opt.DeferTraining
	p.leaf = func(id policy.ID) bool { return t.evictable(t.entries.At(uint32(id))) }
	p.ok = func(id policy.ID) bool { e := t.entries.At(uint32(id)); return t.evictable(e) && !e.claimed }
	p.name = cmp.Or(opt.PolicyName, "lru")
	p.scopes = make([]scope, firstQuota+len(opt.Quotas))
	p.introduce(opt.Policy)
	p.install(everything, opt.Policy)
	lru, _ := policy.New("lru", 0) // there is one of that name
	p.install(claims, lru)
	p.scopes[claims].quota.QuotaBytes = opt.CapacityBytes / 2 // the rest is for others: a new one would go at once
	for i, q := range opt.Quotas {
		own, err := p.fresh(p.name, q.Bytes)
		if err != nil {
			panic("ledger: " + err.Error()) // it made opt.Policy
		}
		p.install(uint32(firstQuota+i), own)
		p.scopes[firstQuota+i].quota.QuotaBytes = q.Bytes
	}
}

// fresh makes a policy for so many bytes: some are made for a size. The lock is not held.
func (p *policies) fresh(name string, bytes int64) (policy.Policy, error) {
	made, err := policy.New(name, bytes)
	if err == nil {
		p.introduce(made)
	}
	return made, err
}

// introduce tells a new policy whom to ask, and how much it may remember.
func (p *policies) introduce(made policy.Policy) {
	if b, ok := made.(policy.Bounder); ok {
		b.Bound(p.table.most)
	}
	if m, ok := made.(policy.MetaReader); ok {
		m.ReadMetaFrom(func(id policy.ID) policy.Meta { return p.told(p.table.entries.At(uint32(id))) })
	}
}

// install makes to the policy of scope r.
func (p *policies) install(r uint32, to policy.Policy) {
	p.scopes[r].install(to, p.later)
	if r == everything {
		p.plans.Store(p.scopes[r].planner != nil)
	}
}

// told is what a policy is told of an entry, but for what only planners want
// to know.
func (p *policies) told(e *entry) policy.Meta {
	return policy.Meta{Hash: p.table.hash(e.space, e.hash), Size: p.table.bytes(e)}
}

// meta is told, with what planners want to know: for others the parent, whose
// hash costs a look at another entry, is left out.
func (p *policies) meta(e *entry, plans bool) policy.Meta {
	m := p.told(e)
	m.Uses = uint8(e.mark / hit)
	if plans && e.parent != 0 {
		m.Parent = p.table.hash(e.space, p.table.entries.At(e.parent).hash)
	}
	return m
}

// inScopes calls do with each scope that has the resident entry e.
func (p *policies) inScopes(e *entry, do func(*scope)) {
	do(&p.scopes[everything])
	if e.claimed {
		do(&p.scopes[claims])
	}
	if e.mark&inQuota != 0 {
		do(&p.scopes[p.table.spaces.slots.At(e.space).quota])
	}
}

// has reports whether a scope has the resident entry e.
func (p *policies) has(r uint32, e *entry) bool {
	switch r {
	case everything:
		return true
	case claims:
		return e.claimed
	}
	return e.mark&inQuota != 0 && p.table.spaces.slots.At(e.space).quota == r
}

// miss tells the policies of the filling entry e, before any victim goes for it.
func (p *policies) miss(e *entry) {
	p.scopes[everything].miss(p.table.hash(e.space, e.hash), p.table.bytes(e))
	if sp := p.table.spaces.slots.At(e.space); sp.quota != 0 && !sp.moving {
		p.scopes[sp.quota].miss(p.table.hash(e.space, e.hash), p.table.bytes(e))
	}
}

// add makes the entry a candidate of scope r.
func (p *policies) add(r, id uint32) {
	to := &p.scopes[r]
	to.policy.Add(policy.ID(id), p.meta(p.table.entries.At(id), to.planner != nil))
}

// join makes the entry a candidate.
func (p *policies) join(id uint32) {
	p.add(everything, id)
	if p.table.entries.At(id).claimed {
		p.add(claims, id)
	}
	if sp := p.table.spaces.slots.At(p.table.entries.At(id).space); sp.quota != 0 && !sp.moving {
		p.joinQuota(id)
	}
}

// joinQuota adds a resident entry to the scope of its quota.
func (p *policies) joinQuota(id uint32) {
	e := p.table.entries.At(id)
	e.mark |= inQuota
	p.add(p.table.spaces.slots.At(e.space).quota, id)
	p.offer(id)
}

func (p *policies) touch(id uint32) {
	p.inScopes(p.table.entries.At(id), func(r *scope) {
		if !r.silent {
			r.policy.Touch(policy.ID(id))
		}
	})
}

// renew makes the entry as young as one just used. It is no use.
func (p *policies) renew(id uint32) {
	p.inScopes(p.table.entries.At(id), func(r *scope) {
		if r.renewer != nil {
			r.renewer.Renew(policy.ID(id))
		}
	})
}

// use counts a use of a resident entry. The first one of an entry that was promoted to be used
// was counted when it was added.
func (p *policies) use(id policy.ID) {
	e := p.table.entries.At(uint32(id))
	p.table.setCold(e, false)
	e.mark = e.mark&^dropBehind | used
	if e.mark&fresh != 0 {
		e.mark &^= fresh
		p.renew(uint32(id))
		return
	}
	if e.mark/hit < MaxHits {
		e.mark += hit
	}
	p.touch(uint32(id))
}

func (p *policies) remove(id uint32) {
	p.out(id, func(r *scope) { r.policy.Remove(policy.ID(id)) })
}

// leave is remove for a victim that the policies have not chosen: those with ghosts
// keep one of it.
func (p *policies) leave(id uint32) {
	p.out(id, func(r *scope) {
		if r.leaver != nil {
			r.leaver.Leave(policy.ID(id))
		} else {
			r.policy.Remove(policy.ID(id))
		}
	})
}

func (p *policies) out(id uint32, forget func(*scope)) {
	e := p.table.entries.At(id)
	p.inScopes(e, forget)
	e.mark &^= inQuota
}

// proven reports whether the policy of all knows that the entry was asked for again: then
// its order is better than what resume points say.
func (p *policies) proven(id uint32) bool {
	leaver := p.scopes[everything].leaver
	return leaver != nil && leaver.Proven(policy.ID(id))
}

// next takes out what the policy of scope r names next.
func (p *policies) next(r uint32) (id uint32, ok bool) {
	acceptable := p.leaf
	if r == everything {
		acceptable = p.ok
	}
	victim, ok := p.scopes[r].policy.Evict(acceptable)
	if !ok {
		return 0, false
	}
	p.out(uint32(victim), func(other *scope) {
		if other != &p.scopes[r] {
			other.policy.Remove(victim)
		}
	})
	return uint32(victim), true
}

// steps is what all policies there have been inspected.
func (p *policies) steps() (n uint64) {
	for i := range p.scopes {
		n += p.scopes[i].policy.Steps()
	}
	return n + p.retired
}

// scope is some of the entries and the order in which they go: all entries, besides those
// that are claimed, and those under one quota.
type scope struct {
	policy   policy.Policy
	planner  planner        // the same, if it wants to be told of requests
	leaver   policy.Leaver  // the same, if it keeps ghosts
	renewer  policy.Renewer // the same, if recency has a part in its order
	silent   bool           // it is told of nothing else: neither of touches nor of what comes
	interior line           // what may go though others stand on it

	quota QuotaStats // of all but the first
}

// The scopes of all entries, and of claimed entries, which have half of the tier for
// a quota; the scopes of other quotas follow.
const everything, claims, firstQuota = 0, 1, 2

// install makes p the policy of the scope.
func (r *scope) install(p policy.Policy, later bool) {
	r.policy, r.planner, r.silent = p, nil, false
	r.leaver, _ = p.(policy.Leaver)
	r.renewer, _ = p.(policy.Renewer)
	switch p := p.(type) {
	case policy.Planner:
		r.planner, r.silent = p, true
		if later {
			p.Defer()
		}
	case *handover:
		if p.plans() {
			r.planner = p
		}
	}
}

func (r *scope) miss(hash uint64, size int64) {
	if !r.silent {
		r.policy.Miss(hash, size)
	}
}
