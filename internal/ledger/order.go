package ledger

import (
	"cmp"

	"github.com/kvstored/kvstored/policy"
)

// order is the order in which entries go, by scope, and the lines of those that
// go before the victims of the policies.
type order struct {
	*table
	scopes    []scope              // of everything, of what is claimed, then of each quota
	name      string               // of their policies
	leaf, ok  func(policy.ID) bool // any that may go; what the policy of all may name
	retired   uint64               // steps of policies that were replaced
	requoting bool                 // no quota is enforced; see Requote

	// pending is the next ancestor to renew after a Publish that ended with
	// tail; 0 for none.
	pending, tail uint32

	chain   []uint64 // of the request being announced
	cold    line
	passing line   // what Pass was told of, in that order
	stale   int    // entries that this round may still drop from lines; see nextUnder
	looked  uint64 // entries of the cold line that victims have looked at
}

// init installs the policies. Those of quotas are of the kind of opt.Policy.
func (o *order) init(t *table, opt Options, later bool) {
	o.table, o.leaf, o.ok = t, t.acceptable, t.unclaimed
	o.name = cmp.Or(opt.PolicyName, "lru")
	o.scopes = make([]scope, firstQuota+len(opt.Quotas))
	o.introduce(opt.Policy)
	o.scopes[everything].install(opt.Policy, later)
	lru, _ := policy.New("lru", 0) // there is one of that name
	o.scopes[claims].install(lru, later)
	o.scopes[claims].quota.QuotaBytes = opt.CapacityBytes / 2 // the rest is for others: a new one would go at once
	for i, q := range opt.Quotas {
		p, err := policy.New(o.name, q.Bytes)
		if err != nil {
			panic("ledger: " + err.Error()) // it made opt.Policy
		}
		o.introduce(p)
		o.scopes[firstQuota+i].install(p, later)
		o.scopes[firstQuota+i].quota.QuotaBytes = q.Bytes
	}
}

// introduce tells a new policy whom to ask, and how much it may remember.
func (o *order) introduce(p policy.Policy) {
	if p, ok := p.(policy.Bounder); ok {
		p.Bound(o.table.most)
	}
	if p, ok := p.(policy.MetaReader); ok {
		p.ReadMetaFrom(func(id policy.ID) policy.Meta { return o.told(o.entries.At(uint32(id))) })
	}
}

// told is what a policy is told of an entry, but for what only planners want
// to know.
func (o *order) told(e *entry) policy.Meta {
	return policy.Meta{Hash: o.hash(e.space, e.hash), Size: o.bytes(e)}
}

// meta is told, with what planners want to know: for others the parent, whose
// hash costs a look at another entry, is left out.
func (o *order) meta(e *entry, plans bool) policy.Meta {
	m := o.told(e)
	m.Uses = uint8(e.mark / hit)
	if plans && e.parent != 0 {
		m.Parent = o.hash(e.space, o.entries.At(e.parent).hash)
	}
	return m
}

// inScopes calls do with each scope that has the resident entry e.
func (o *order) inScopes(e *entry, do func(*scope)) {
	do(&o.scopes[everything])
	if e.claimed {
		do(&o.scopes[claims])
	}
	if e.mark&inQuota != 0 {
		do(&o.scopes[o.spaces.slots.At(e.space).quota])
	}
}

// has reports whether a scope has the resident entry e.
func (o *order) has(r uint32, e *entry) bool {
	switch r {
	case everything:
		return true
	case claims:
		return e.claimed
	}
	return e.mark&inQuota != 0 && o.spaces.slots.At(e.space).quota == r
}

// miss tells the policies of the filling entry e, before any victim goes for it.
func (o *order) miss(e *entry) {
	o.scopes[everything].miss(o.hash(e.space, e.hash), o.bytes(e))
	if sp := o.spaces.slots.At(e.space); sp.quota != 0 && !sp.moving {
		o.scopes[sp.quota].miss(o.hash(e.space, e.hash), o.bytes(e))
	}
}

// add makes the entry a candidate of scope r.
func (o *order) add(r, id uint32) {
	to := &o.scopes[r]
	to.policy.Add(policy.ID(id), o.meta(o.entries.At(id), to.planner != nil))
}

// join makes the entry a candidate.
func (o *order) join(id uint32) {
	o.add(everything, id)
	if o.entries.At(id).claimed {
		o.add(claims, id)
	}
	if sp := o.spaces.slots.At(o.entries.At(id).space); sp.quota != 0 && !sp.moving {
		o.joinQuota(id)
	}
}

// joinQuota adds a resident entry to the scope of its quota.
func (o *order) joinQuota(id uint32) {
	e := o.entries.At(id)
	e.mark |= inQuota
	o.add(o.spaces.slots.At(e.space).quota, id)
	o.offer(id)
}

func (o *order) touch(id uint32) {
	o.inScopes(o.entries.At(id), func(r *scope) {
		if !r.silent {
			r.policy.Touch(policy.ID(id))
		}
	})
}

// renew makes the entry as young as one just used. It is no use.
func (o *order) renew(id uint32) {
	o.inScopes(o.entries.At(id), func(r *scope) {
		if r.renewer != nil {
			r.renewer.Renew(policy.ID(id))
		}
	})
}

// use counts a use of a resident entry. The first one of an entry that was promoted to be used
// was counted when it was added.
func (o *order) use(id policy.ID) {
	e := o.entries.At(uint32(id))
	o.setCold(e, false)
	e.mark = e.mark&^passed | used
	if e.mark&fresh != 0 {
		e.mark &^= fresh
		o.renew(uint32(id))
		return
	}
	if e.mark/hit < MaxHits {
		e.mark += hit
	}
	o.touch(uint32(id))
}

// renews reports whether renew does anything.
func (o *order) renews() bool { return o.scopes[everything].renewer != nil }

func (o *order) allow(id uint32) {
	if o.entries.At(id).mark&cooled != 0 {
		o.cold.push(id)
	}
	o.inScopes(o.entries.At(id), func(r *scope) { r.policy.Allow(policy.ID(id)) })
}

func (o *order) remove(id uint32) {
	o.out(id, func(r *scope) { r.policy.Remove(policy.ID(id)) })
}

// leave is remove for a victim that the policies have not chosen: those with ghosts
// keep one of it.
func (o *order) leave(id uint32) {
	o.out(id, func(r *scope) {
		if r.leaver != nil {
			r.leaver.Leave(policy.ID(id))
		} else {
			r.policy.Remove(policy.ID(id))
		}
	})
}

func (o *order) out(id uint32, forget func(*scope)) {
	e := o.entries.At(id)
	o.inScopes(e, forget)
	e.mark &^= inQuota
}

// proven reports whether the policy of all knows that the entry was asked for again: then
// its order is better than what boundaries say.
func (o *order) proven(id uint32) bool {
	p := o.scopes[everything].leaver
	return p != nil && p.Proven(policy.ID(id))
}

// next takes out the next victim of scope r.
func (o *order) next(r uint32) (id uint32, ok bool) {
	if r == everything {
		if id, ok := o.nextCold(); ok {
			o.leave(id)
			return id, true
		}
	}
	acceptable := o.leaf
	if r == everything {
		acceptable = o.ok
	}
	victim, ok := o.scopes[r].policy.Evict(acceptable)
	if !ok {
		return 0, false
	}
	o.out(uint32(victim), func(other *scope) {
		if other != &o.scopes[r] {
			other.policy.Remove(victim)
		}
	})
	return uint32(victim), true
}

// steps is what all policies there have been inspected.
func (o *order) steps() (n uint64) {
	for i := range o.scopes {
		n += o.scopes[i].policy.Steps()
	}
	return n + o.retired + o.looked
}

// scope is some of the entries and the order in which they go: all entries, besides those
// that are claimed, and those under one quota.
type scope struct {
	policy  policy.Policy
	planner planner        // the same, if it wants to be told of requests
	leaver  policy.Leaver  // the same, if it keeps ghosts
	renewer policy.Renewer // the same, if recency has a part in its order
	silent  bool           // it is told of nothing else: neither of touches nor of what comes
	under   line           // what may go though others stand on it

	quota QuotaStats // of all but the first
}

// The scopes of all entries, and of those that are claimed, which have half of the tier for
// a quota; those of other quotas follow.
const everything, claims, firstQuota = 0, 1, 2

func (r *scope) miss(hash uint64, size int64) {
	if !r.silent {
		r.policy.Miss(hash, size)
	}
}
