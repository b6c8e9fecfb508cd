package simulate

import (
	"slices"

	"github.com/kvstored/kvstored/policy"
)

// slowSieve is SIEVE with the entries in a slice, oldest first, and the hand an
// index into it.
type slowSieve struct {
	ids   []policy.ID
	used  map[policy.ID]bool
	hand  int
	wraps int
	steps uint64
}

func (m *slowSieve) Miss(uint64, int64)              {}
func (m *slowSieve) Add(id policy.ID, _ policy.Meta) { m.ids = append(m.ids, id) }
func (m *slowSieve) Touch(id policy.ID)              { m.used[id] = true }
func (m *slowSieve) Remove(id policy.ID)             { m.cut(slices.Index(m.ids, id)) }
func (m *slowSieve) Allow(policy.ID)                 {}
func (m *slowSieve) Steps() uint64                   { return m.steps }

// Evict goes around twice: used entries are forgiven in the first round.
func (m *slowSieve) Evict(ok func(policy.ID) bool) (policy.ID, bool) {
	n := len(m.ids)
	for i := range 2 * n {
		at := (m.hand + i) % n
		id := m.ids[at]
		m.steps++
		switch {
		case !ok(id):
		case m.used[id]:
			m.used[id] = false
		default:
			if at < m.hand {
				m.wraps++
			}
			m.hand = at
			m.cut(at)
			return id, true
		}
	}
	return 0, false
}

// cut removes an entry. A hand that is there moves to the next newer one, or
// begins again.
func (m *slowSieve) cut(at int) {
	delete(m.used, m.ids[at])
	m.ids = slices.Delete(m.ids, at, at+1)
	if at < m.hand {
		m.hand--
	}
	if m.hand == len(m.ids) {
		m.hand = 0
	}
}
