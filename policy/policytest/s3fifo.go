package policytest

import "github.com/kvstored/kvstored/policy"

// s3fifo is S3-FIFO as its authors simulate it, over slices.
type s3fifo struct {
	events
	capacity, mainShare, ghostShare float64
	small, main, ghosts             weighed
	promised                        weighed // ghosts that were asked for, and are not back yet
	steps                           uint64
}

func newS3FIFO(c int64) policy.Policy {
	return &s3fifo{
		capacity:   float64(c),
		mainShare:  float64(c - int64(0.1*float64(c))),
		ghostShare: float64(int64(0.9 * float64(c))),
	}
}

func (m *s3fifo) Allow(policy.ID) {}
func (m *s3fifo) Steps() uint64   { return m.steps }

func (m *s3fifo) Miss(hash uint64, size int64) {
	_, promised := m.promised.cut(byHash(hash))
	_, ghost := m.ghosts.cut(byHash(hash))
	if ghost {
		m.count("ghost")
	}
	if promised || ghost {
		m.promised.push(item{hash: hash, size: size})
		m.promised.trim(m.capacity)
	}
}

func (m *s3fifo) Add(id policy.ID, meta policy.Meta) {
	e := item{id: id, hash: meta.Hash, size: meta.Size}
	if _, back := m.promised.cut(byHash(e.hash)); back {
		m.main.push(e)
	} else {
		m.small.push(e)
	}
}

func (m *s3fifo) Touch(id policy.ID) {
	for _, q := range []weighed{m.small, m.main} {
		for i := range q {
			if q[i].id == id {
				q[i].uses++
			}
		}
	}
}

func (m *s3fifo) Remove(id policy.ID) {
	m.small.cut(byID(id))
	m.main.cut(byID(id))
}

func (m *s3fifo) Leave(id policy.ID) {
	if e, found := m.small.cut(byID(id)); found {
		m.haunt(e)
	}
	m.main.cut(byID(id))
}

func (m *s3fifo) Proven(id policy.ID) bool { return m.main.has(byID(id)) }

func (m *s3fifo) haunt(e item) {
	m.ghosts.cut(byHash(e.hash))
	m.promised.cut(byHash(e.hash))
	m.ghosts.push(e)
	m.ghosts.trim(m.ghostShare)
}

func (m *s3fifo) Evict(ok func(policy.ID) bool) (id policy.ID, found bool) {
	acceptable := func(e item) bool { m.steps++; return ok(e.id) }
	if m.main.weight() > m.mainShare || len(m.small) == 0 {
		id, found = m.fromMain(acceptable)
	}
	if !found {
		id, found = m.fromSmall(acceptable)
	}
	if !found {
		id, found = m.fromMain(acceptable)
	}
	return id, found
}

func (m *s3fifo) fromSmall(acceptable func(item) bool) (policy.ID, bool) {
	for {
		e, found := m.small.cut(func(e item) bool { return e.uses >= 2 || acceptable(e) })
		if !found {
			return 0, false
		}
		if e.uses < 2 {
			m.haunt(e)
			return e.id, true
		}
		e.uses = 0
		m.main.push(e)
	}
}

func (m *s3fifo) fromMain(acceptable func(item) bool) (policy.ID, bool) {
	for {
		e, found := m.main.cut(func(e item) bool { return e.uses > 0 || acceptable(e) })
		if !found || e.uses == 0 {
			return e.id, found
		}
		if e.uses > 3 {
			m.count("saturated")
		}
		e.uses = min(e.uses, 3) - 1
		m.main.push(e)
	}
}
