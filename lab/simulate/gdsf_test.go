package simulate

import "github.com/kvstored/kvstored/policy"

// slowGDSF looks for the lowest priority every time. The entries are in the order
// of their last use.
type slowGDSF struct {
	entries []counted
	floor   int // L
	steps   uint64
	ties    int
}

type counted struct {
	id             policy.ID
	uses, priority int
}

func (m *slowGDSF) Miss(uint64, int64) {}
func (m *slowGDSF) Allow(policy.ID)    {}
func (m *slowGDSF) Steps() uint64      { return m.steps }

func (m *slowGDSF) Add(id policy.ID, _ policy.Meta) {
	m.use(counted{id: id})
}

func (m *slowGDSF) Touch(id policy.ID) {
	e := m.entries[m.index(id)]
	m.Remove(id)
	m.use(e)
}

func (m *slowGDSF) Remove(id policy.ID) {
	i := m.index(id)
	m.entries = append(m.entries[:i], m.entries[i+1:]...)
}

func (m *slowGDSF) Evict(ok func(policy.ID) bool) (policy.ID, bool) {
	var victim counted
	found := false
	for _, e := range m.entries {
		m.steps++
		if found && e.priority == victim.priority {
			m.ties++
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

func (m *slowGDSF) use(e counted) {
	e.uses++
	e.priority = m.floor + e.uses
	m.entries = append(m.entries, e)
}

func (m *slowGDSF) index(id policy.ID) int {
	for i, e := range m.entries {
		if e.id == id {
			return i
		}
	}
	panic("the entry is not resident")
}
