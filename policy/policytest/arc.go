package policytest

import "github.com/kvstored/kvstored/policy"

// arc is the algorithm of the paper over slices.
type arc struct {
	events
	c, p           float64
	t1, t2, b1, b2 weighed
	promised       weighed // ghosts that were asked for, and are not back yet
	fromB2         bool
	steps          uint64
}

func newARC(c float64) *arc { return &arc{c: c} }

func (m *arc) Allow(policy.ID) {}
func (m *arc) Steps() uint64   { return m.steps }

func (m *arc) Miss(hash uint64, size int64) {
	n1, n2 := m.b1.weight(), m.b2.weight()
	step := float64(size)
	_, promised := m.promised.cut(byHash(hash))
	_, in1 := m.b1.cut(byHash(hash))
	_, in2 := m.b2.cut(byHash(hash))
	if in1 {
		m.count("b1")
		m.p = min(m.c, m.p+step*max(1, n2/n1))
	}
	if in2 {
		m.count("b2")
		m.p = max(0, m.p-step*max(1, n1/n2))
	}
	m.fromB2 = in2
	if promised || in1 || in2 {
		m.promised.push(item{hash: hash, size: size})
		m.promised.trim(m.c)
	}
}

func (m *arc) Add(id policy.ID, meta policy.Meta) {
	e := item{id: id, hash: meta.Hash, size: meta.Size}
	if _, back := m.promised.cut(byHash(e.hash)); back {
		m.t2.push(e)
	} else {
		m.t1.push(e)
	}
	m.b1.trim(max(0, m.c-m.t1.weight()))
	m.b2.trim(max(0, 2*m.c-m.t1.weight()-m.t2.weight()-m.b1.weight()))
}

func (m *arc) Touch(id policy.ID) { m.t2.push(m.remove(id)) }

func (m *arc) Renew(id policy.ID) {
	if e, found := m.t1.cut(byID(id)); found {
		m.t1.push(e)
		return
	}
	m.Touch(id)
}

func (m *arc) Leave(id policy.ID) {
	ghosts := &m.b1
	if m.Proven(id) {
		ghosts = &m.b2
	}
	m.haunt(ghosts, m.remove(id))
}

func (m *arc) Proven(id policy.ID) bool { return m.t2.has(byID(id)) }

func (m *arc) Remove(id policy.ID) { m.remove(id) }

func (m *arc) remove(id policy.ID) item {
	if e, found := m.t1.cut(byID(id)); found {
		return e
	}
	e, _ := m.t2.cut(byID(id))
	return e
}

func (m *arc) Evict(ok func(policy.ID) bool) (policy.ID, bool) {
	acceptable := func(e item) bool { m.steps++; return ok(e.id) }
	first, then := &m.t2, &m.t1
	firstGhosts, thenGhosts := &m.b2, &m.b1
	if n := m.t1.weight(); n > 0 && (n > m.p || m.fromB2 && n == m.p) {
		first, then = then, first
		firstGhosts, thenGhosts = thenGhosts, firstGhosts
	}
	e, found := first.cut(acceptable)
	ghosts := firstGhosts
	if !found {
		e, found = then.cut(acceptable)
		ghosts = thenGhosts
	}
	if found {
		m.haunt(ghosts, e)
	}
	return e.id, found
}

func (m *arc) haunt(ghosts *weighed, e item) {
	for _, q := range []*weighed{&m.b1, &m.b2, &m.promised} {
		q.cut(byHash(e.hash))
	}
	ghosts.push(e)
}
