package policytest

import (
	"cmp"
	"slices"

	"github.com/kvstored/kvstored/policy"
)

// models are the policies as one would write them down: plain slices in the
// order of eviction, scanned from the start every time. Allow does nothing,
// because ok is asked afresh each time.
var models = map[string]func() policy.Policy{
	"lru":  func() policy.Policy { return &line{touch: toBack, add: toBack} },
	"fifo": func() policy.Policy { return &line{touch: stay, add: toBack} },
	"mru":  func() policy.Policy { return &line{touch: toFront, add: toFront} },
	"lfu":  func() policy.Policy { return &counted{} },
}

// move puts id somewhere in ids, where it may be already.
type move func(ids []policy.ID, id policy.ID) []policy.ID

func toBack(ids []policy.ID, id policy.ID) []policy.ID { return append(without(ids, id), id) }

func toFront(ids []policy.ID, id policy.ID) []policy.ID {
	return slices.Insert(without(ids, id), 0, id)
}

func stay(ids []policy.ID, _ policy.ID) []policy.ID { return ids }

func without(ids []policy.ID, id policy.ID) []policy.ID {
	if i := slices.Index(ids, id); i >= 0 {
		return slices.Delete(ids, i, i+1)
	}
	return ids
}

// line keeps entries in one order.
type line struct {
	ids        []policy.ID
	add, touch move
	steps      uint64
}

func (m *line) Admit(uint64, int64)             {}
func (m *line) Add(id policy.ID, _ policy.Meta) { m.ids = m.add(m.ids, id) }
func (m *line) Touch(id policy.ID)              { m.ids = m.touch(m.ids, id) }
func (m *line) Remove(id policy.ID)             { m.ids = without(m.ids, id) }
func (m *line) Allow(policy.ID)                 {}
func (m *line) Steps() uint64                   { return m.steps }

func (m *line) Evict(ok func(policy.ID) bool) (policy.ID, bool) {
	for _, id := range m.ids {
		m.steps++
		if ok(id) {
			m.Remove(id)
			return id, true
		}
	}
	return 0, false
}

// counted keeps entries by how often they were used, then by when they
// reached that count.
type counted struct {
	entries []uses
	now     int
	steps   uint64
}

type uses struct {
	id             policy.ID
	count, reached int
}

func (m *counted) Admit(uint64, int64) {}

func (m *counted) Add(id policy.ID, _ policy.Meta) {
	m.now++
	m.entries = append(m.entries, uses{id, 1, m.now})
	m.sort()
}

func (m *counted) Touch(id policy.ID) {
	m.now++
	e := &m.entries[m.index(id)]
	e.count++
	e.reached = m.now
	m.sort()
}

func (m *counted) Remove(id policy.ID) {
	i := m.index(id)
	m.entries = slices.Delete(m.entries, i, i+1)
}

func (m *counted) Allow(policy.ID) {}
func (m *counted) Steps() uint64   { return m.steps }

func (m *counted) Evict(ok func(policy.ID) bool) (policy.ID, bool) {
	for _, e := range m.entries {
		m.steps++
		if ok(e.id) {
			m.Remove(e.id)
			return e.id, true
		}
	}
	return 0, false
}

func (m *counted) index(id policy.ID) int {
	return slices.IndexFunc(m.entries, func(e uses) bool { return e.id == id })
}

func (m *counted) sort() {
	slices.SortFunc(m.entries, func(a, b uses) int {
		return cmp.Or(cmp.Compare(a.count, b.count), cmp.Compare(a.reached, b.reached))
	})
}
