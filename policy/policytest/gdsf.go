package policytest

import "github.com/kvstored/kvstored/policy"

// gdsf looks for the lowest priority every time. The entries are in the order
// of their last use.
type gdsf struct {
	events
	entries []valued
	floor   float64 // L
	steps   uint64
}

type valued struct {
	id                         policy.ID
	uses, cost, size, priority float64
}

func (m *gdsf) Miss(uint64, int64) {}
func (m *gdsf) Allow(policy.ID)    {}
func (m *gdsf) Steps() uint64      { return m.steps }

func (m *gdsf) Add(id policy.ID, meta policy.Meta) {
	m.use(valued{id: id, cost: float64(max(1, meta.Cost)), size: float64(meta.Size)})
}

func (m *gdsf) Touch(id policy.ID) {
	e := m.entries[m.index(id)]
	m.Remove(id)
	m.use(e)
}

func (m *gdsf) Remove(id policy.ID) {
	i := m.index(id)
	m.entries = append(m.entries[:i], m.entries[i+1:]...)
}

func (m *gdsf) Evict(ok func(policy.ID) bool) (policy.ID, bool) {
	var victim valued
	found := false
	for _, e := range m.entries {
		m.steps++
		if found && e.priority == victim.priority {
			m.count("tie")
		}
		if (!found || e.priority < victim.priority) && ok(e.id) {
			victim, found = e, true
		}
	}
	if found {
		m.Remove(victim.id)
		m.floor = max(m.floor, victim.priority)
	}
	return victim.id, found
}

func (m *gdsf) use(e valued) {
	e.uses++
	e.priority = m.floor + e.uses*(e.cost/e.size)
	m.entries = append(m.entries, e)
}

func (m *gdsf) index(id policy.ID) int {
	for i, e := range m.entries {
		if e.id == id {
			return i
		}
	}
	panic("policytest: the entry is not resident")
}
