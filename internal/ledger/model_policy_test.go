package ledger_test

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/policy/policytest"
)

// quotaPages is what the second space may occupy, once it is under a quota.
const quotaPages = 12

// ranking is what a ledger does with its policies, over their reference
// models.
type ranking struct {
	all policy.Policy
	own policy.Policy // of the second space; nil while it is under no quota
	in  map[*body]bool
	// unknown is set once entries are in an order that no model has.
	unknown bool
	// A publish leaves renewing its ancestors to the next call that uses the
	// policies: pending is the first of them. Only a publish that goes on below
	// tail does not do it first, because it will have it done again.
	pending, tail *body
	renews        bool // the policy does, also where it is only trusted
	evictions     uint64
	refused       uint64
	claims        policy.Policy // of those that are claimed
	dropBehind    []policy.ID   // of what has come by, first to last; what has left since may be among it
}

// claim says whether an entry is claimed.
func (m *model) claim(e *body, is bool) {
	if e.claimed == is {
		return
	}
	if e.claimed = is; is {
		m.claims.Add(e.entry.ID, meta(e))
	} else {
		m.claims.Remove(e.entry.ID)
	}
}

// claimedLeaf takes the first of the claimed entries that may go out of all.
func (m *model) claimedLeaf() *body {
	byID := m.byID()
	id, ok := m.claims.Evict(func(id policy.ID) bool { return m.evictable(byID[id]) })
	if !ok {
		return nil
	}
	m.claims.Add(id, meta(byID[id]))
	m.remove(byID[id])
	return byID[id]
}

func newRanking(name string) *ranking {
	r := &ranking{in: make(map[*body]bool), claims: policytest.Model("lru", 0)}
	r.all = r.reference(name, 1<<20)
	return r
}

// hash need only be another for each key: the ledger's is seeded.
func hash(k key.Key) uint64 { return binary.LittleEndian.Uint64(k.Hash[8:]) ^ uint64(k.Space[3]) }

func meta(e *body) policy.Meta {
	return policy.Meta{Hash: hash(e.entry.Key), Size: occupied(e.entry.Size)}
}

// trusting stands for a policy whose order depends on more than a ranking
// sees: it believes what the ledger evicted, if that could go, and knows when
// something could. Package policytest has the order.
type trusting struct {
	in   map[policy.ID]bool
	told *policy.ID // what the ledger evicted; nil for nothing
}

func (p *trusting) Miss(uint64, int64)              {}
func (p *trusting) Add(id policy.ID, _ policy.Meta) { p.in[id] = true }
func (p *trusting) Touch(policy.ID)                 {}
func (p *trusting) Remove(id policy.ID)             { delete(p.in, id) }
func (p *trusting) Allow(policy.ID)                 {}
func (p *trusting) Steps() uint64                   { return 0 }

func (p *trusting) Evict(ok func(policy.ID) bool) (policy.ID, bool) {
	for id := range p.in {
		if p.told == nil && ok(id) || p.told != nil && *p.told == id && ok(id) {
			delete(p.in, id)
			return id, true
		}
	}
	return 0, false
}

// trust says what the ledger evicted, before the model is asked for it.
func (r *ranking) trust(e ledger.Entry, found bool) {
	for _, p := range []policy.Policy{r.all, r.own, r.claims} {
		if p, ok := p.(*trusting); ok {
			if p.told = nil; found {
				p.told = &e.ID
			}
		}
	}
}

// trustAll gives up knowing the order.
func (r *ranking) trustAll() {
	r.all = trusted(r.all)
	if r.own != nil {
		r.own = trusted(r.own)
	}
	r.unknown = true
}

// trusted is a policy with the entries of p, which is empty afterwards.
func trusted(p policy.Policy) policy.Policy {
	if _, already := p.(*trusting); already {
		return p
	}
	known := &trusting{in: make(map[policy.ID]bool)}
	for {
		id, ok := p.Evict(func(policy.ID) bool { return true })
		if !ok {
			return known
		}
		known.in[id] = true
	}
}

// reference is the model of a policy. Entries that have been under a trusted one
// once are in an order that no model knows.
func (r *ranking) reference(name string, capacity int64) policy.Policy {
	if slices.Contains(policy.Planners(), name) {
		r.unknown = true
	}
	p, _ := policy.New(name, capacity)
	_, r.renews = p.(policy.Renewer)
	if r.unknown {
		return &trusting{in: make(map[policy.ID]bool)}
	}
	return policytest.Model(name, capacity)
}

func (r *ranking) owns(k key.Key) bool { return r.own != nil && k.Space[3] == 1 }

func (r *ranking) admit(k key.Key, size uint32) {
	r.all.Miss(hash(k), occupied(size))
	if r.owns(k) {
		r.own.Miss(hash(k), occupied(size))
	}
}

func (r *ranking) add(e *body) {
	r.all.Add(e.entry.ID, meta(e))
	if e.claimed {
		r.claims.Add(e.entry.ID, meta(e))
	}
	if r.owns(e.entry.Key) {
		r.quote(e)
	}
}

func (r *ranking) quote(e *body) {
	r.own.Add(e.entry.ID, meta(e))
	r.in[e] = true
}

func (r *ranking) touch(e *body) {
	if e.claimed {
		r.claims.Touch(e.entry.ID)
	}
	r.all.Touch(e.entry.ID)
	if r.in[e] {
		r.own.Touch(e.entry.ID)
	}
}

func (r *ranking) renew(e *body) {
	if e.claimed {
		r.claims.Touch(e.entry.ID)
	}
	if all, ok := r.all.(policy.Renewer); ok {
		all.Renew(e.entry.ID)
		if r.in[e] {
			r.own.(policy.Renewer).Renew(e.entry.ID)
		}
	}
}

func (r *ranking) remove(e *body) {
	r.all.Remove(e.entry.ID)
	if e.claimed {
		r.claims.Remove(e.entry.ID)
	}
	if r.in[e] {
		r.own.Remove(e.entry.ID)
		delete(r.in, e)
	}
}

// assign puts the second space under its quota.
func (m *model) assign(name string) {
	if m.own != nil {
		return
	}
	m.own = m.reference(name, quotaPages*page)
	var es []*body
	for _, e := range m.live {
		if e.state == ledger.Resident && e.entry.Key.Space[3] == 1 {
			es = append(es, e)
		}
	}
	slices.SortFunc(es, func(a, b *body) int { return cmp.Compare(a.entry.ID, b.entry.ID) })
	for _, e := range es {
		m.quote(e)
	}
}

// setPolicy moves everything in the order in which it would go.
func (m *model) setPolicy(name string) {
	byID := m.byID()
	m.trust(ledger.Entry{}, false)
	move := func(from policy.Policy, room int64) policy.Policy {
		to := m.reference(name, room)
		for {
			id, ok := from.Evict(func(policy.ID) bool { return true })
			if !ok {
				return to
			}
			to.Add(id, meta(byID[id]))
			for range byID[id].entry.Hits {
				to.Touch(id)
			}
		}
	}
	m.all = move(m.all, 1<<20)
	if m.own != nil {
		m.own = move(m.own, quotaPages*page)
	}
}

func (m *model) byID() map[policy.ID]*body {
	ids := make(map[policy.ID]*body)
	for _, e := range m.live {
		if e.state == ledger.Resident {
			ids[e.entry.ID] = e
		}
	}
	return ids
}

// quotaUsed is what the second space occupies, if that is counted. What is leaving does
// not count: those who evict it for others have yet to free it.
func (m *model) quotaUsed() (n int64) {
	if m.own == nil {
		return 0
	}
	for e := range m.bodies {
		leaving := slices.Contains(m.dead, e) && len(e.holds) == 0
		if e.entry.Key.Space[3] == 1 && !leaving {
			n += occupied(e.entry.Size)
		}
	}
	return n
}

// renewPending renews what a publish left.
func (m *model) renewPending() {
	for m.renews && m.pending != nil && m.pending.state == ledger.Resident {
		m.renew(m.pending)
		m.pending = m.up(m.pending)
	}
	m.pending = nil
}

// unlink is called for an entry that is about to leave.
func (m *model) unlink(e *body) {
	if m.pending == e {
		m.pending = m.up(e)
	}
	if m.tail == e {
		m.tail = nil
	}
}

// enlist adds es to the policy tail first, and renews the resident entries between
// them; those above them wait for renewPending.
func (m *model) enlist(es []*body) {
	if m.tail == nil || m.up(es[0]) != m.tail {
		m.renewPending()
	}
	m.tail = nil
	fresh := make(map[*body]bool)
	for _, e := range es {
		fresh[e] = true
	}
	for i := len(es) - 1; i >= 0; i-- {
		if !fresh[es[i]] {
			continue // on the way from a kid
		}
		for e := es[i]; e != nil && (fresh[e] || e.state == ledger.Resident); e = m.up(e) {
			if fresh[e] {
				delete(fresh, e)
				e.state = ledger.Resident
				m.add(e)
			} else {
				m.renew(e)
			}
			if e == es[0] {
				if i == len(es)-1 {
					m.tail = es[i]
				}
				break
			}
		}
	}
	m.pending = m.up(es[0])
}

// evict takes the next victim of one of the policies. Where there is no leaf,
// or one that would be lost, it takes what the ledger evicted of those that
// stand underneath, if that could go; and something if something could.
func (m *model) evict(p policy.Policy, got ledger.Entry, safely bool) *body {
	m.renewPending()
	e := m.choose(p, got, safely)
	if e == nil {
		return nil
	}
	if p == m.own {
		m.evictions++
	}
	e.charged = safely && m.works != 0 && e.entry.Dirty && !m.isLost(e)
	m.endResidency(e)
	return e
}

// pass notes that a prompt has come by here. What others hang on, too, is left alone.
func (m *model) pass(es []*body) {
	for _, e := range es {
		if m.kids(e.entry.Key) > 1 {
			continue
		}
		e.dropBehind = true
		if !slices.Contains(m.dropBehind, e.entry.ID) {
			m.dropBehind = append(m.dropBehind, e.entry.ID)
		}
	}
}

// nextDropBehind is the first of what has come by that may go, if it is among the next 8;
// what may not go yet comes by once more.
func (m *model) nextDropBehind() *body {
	byID := m.byID()
	for range min(8, len(m.dropBehind)) {
		e, id := byID[m.dropBehind[0]], m.dropBehind[0]
		m.dropBehind = m.dropBehind[1:]
		switch {
		case e == nil || !e.dropBehind:
		case e.entry.Below&m.works != 0 && (m.evictable(e) || m.evictableInterior(e)):
			return e
		default:
			m.dropBehind = append(m.dropBehind, id)
		}
	}
	return nil
}

func (m *model) choose(p policy.Policy, got ledger.Entry, safely bool) *body {
	if p == m.all {
		if e := m.nextDropBehind(); e != nil {
			m.remove(e)
			return e
		}
	}
	if _, unknown := p.(*trusting); unknown && safely && got.Key == (key.Key{}) && m.mayGiveUp(p, got) {
		m.claims = trusted(m.claims) // the ledger has put some back
		return nil
	}
	for range 16 {
		if p == m.all && m.stats().ClaimedBytes > 1<<20/2 {
			if e := m.claimedLeaf(); e != nil && !m.isLost(e) {
				return e
			} else if e != nil {
				m.add(e)
			}
		}
		e := m.leaf(p)
		if e != nil && !m.isLost(e) {
			return e
		}
		under := m.under(p, got, false)
		if e == nil && under == nil && p == m.all {
			if e = m.claimedLeaf(); e != nil && !m.isLost(e) {
				return e
			}
			under = m.under(p, got, true)
		}
		if e != nil && (under != nil || safely && m.works != 0) {
			m.add(e)
		}
		switch {
		case under != nil:
			m.remove(under)
			return under
		case e == nil || !(safely && m.works != 0):
			return e
		}
	}
	return nil
}

// mayGiveUp says whether a ledger may have come to leaves that would be lost only.
func (m *model) mayGiveUp(p policy.Policy, got ledger.Entry) bool {
	if p == m.own {
		return m.under(p, got, false) == nil && m.anyLost()
	}
	var any, lost [2]bool // not claimed, and claimed
	for _, e := range m.live {
		if m.works != 0 && m.evictable(e) {
			with := 0
			if e.claimed {
				with = 1
			}
			any[with], lost[with] = true, lost[with] || m.isLost(e)
		}
	}
	return m.under(p, got, false) == nil && (lost[0] || !any[0] && lost[1] && m.under(p, got, true) == nil)
}

// anyLost says whether a leaf under the quota would be lost, and a tier below works.
func (m *model) anyLost() bool {
	for _, e := range m.live {
		if m.works != 0 && m.in[e] && m.evictable(e) && m.isLost(e) {
			return true
		}
	}
	return false
}

// isLost says whether no writer would take a victim.
func (m *model) isLost(e *body) bool {
	n, l, held := occupied(e.entry.Size), m.limits, m.class(ledger.Unwritten)
	full := l.Unwritten > 0 && held+n > l.Unwritten
	if n > l.Unwritten {
		full = l.Unwritten > 0 && held >= l.Unwritten
	}
	return e.entry.Dirty && (full || held > 0 && l.Total > 0 && m.protectedBytes()+n > l.Total)
}

// under is what the ledger evicted of a policy, if it stands underneath.
func (m *model) under(p policy.Policy, got ledger.Entry, claimed bool) *body {
	for _, e := range m.live {
		if m.evictableInterior(e) && (claimed || p == m.own || !e.claimed) && (p == m.all || m.in[e]) && (got.Key == key.Key{} || e.entry == known(got)) {
			return e
		}
	}
	return nil
}

// leaf takes the next of one of the policies out of all.
func (m *model) leaf(p policy.Policy) *body {
	byID := m.byID()
	id, ok := p.Evict(func(id policy.ID) bool { return m.evictable(byID[id]) && (p == m.own || !byID[id].claimed) })
	if !ok {
		return nil
	}
	e := byID[id]
	if p == m.own {
		m.all.Remove(id)
	} else if m.in[e] {
		m.own.Remove(id)
	}
	if e.claimed {
		m.claims.Remove(id)
	}
	delete(m.in, e)
	return e
}
