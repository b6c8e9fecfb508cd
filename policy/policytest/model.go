package policytest

import (
	"cmp"
	"slices"

	"github.com/kvstored/kvstored/policy"
)

// models are the policies as one would write them down: plain slices in the
// order of eviction, scanned from the start every time. Allow does nothing,
// because ok is asked afresh each time; but for tenure, where it decides what
// goes first of the like.
var models = map[string]func(capacity int64) policy.Policy{
	"lru":    func(int64) policy.Policy { return &recent{line{touch: toBack, add: toBack}} },
	"fifo":   func(int64) policy.Policy { return &line{touch: stay, add: toBack} },
	"mru":    func(int64) policy.Policy { return &recent{line{touch: toFront, add: toFront}} },
	"lfu":    func(int64) policy.Policy { return &counted{} },
	"arc":    func(capacity int64) policy.Policy { return newARC(float64(capacity)) },
	"s3fifo": newS3FIFO,
	"tenure": newTenure,
}

// Model returns the reference model of a policy, for other packages to
// compare with. It panics, and says where the model belongs, if there is none.
func Model(name string, capacity int64) policy.Policy {
	m := models[name]
	if m == nil {
		panic("policytest: policy " + name + " has no model: add one to models in policy/policytest/model.go")
	}
	return m(capacity)
}

// Events says how often a model went ways that a test may want to be sure of:
// "tie" (lfu), "b1" and "b2" (arc: ghosts met), "ghost"
// (s3fifo: met), "saturated" (s3fifo: an entry used more often than counts) and
// "turned" (tenure: the tables are believed no more, or again).
func Events(model policy.Policy) map[string]int {
	if m, ok := model.(interface{ happened() map[string]int }); ok {
		return m.happened()
	}
	return nil
}

// events counts what happened in a model.
type events map[string]int

func (e *events) count(what string) {
	if *e == nil {
		*e = make(events)
	}
	(*e)[what]++
}

func (e *events) happened() map[string]int { return *e }

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

func (m *line) Miss(uint64, int64)              {}
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

// recent is a line in which recency is all there is.
type recent struct{ line }

func (m *recent) Renew(id policy.ID) { m.Touch(id) }

// counted keeps entries by how often they were used, then by when they
// reached that count.
type counted struct {
	events
	entries []uses
	now     int
	steps   uint64
}

type uses struct {
	id             policy.ID
	count, reached int
}

func (m *counted) Miss(uint64, int64)              {}
func (m *counted) Add(id policy.ID, _ policy.Meta) { m.insert(id, 1) }
func (m *counted) Touch(id policy.ID)              { m.insert(id, m.delete(id)+1) }
func (m *counted) Remove(id policy.ID)             { m.delete(id) }
func (m *counted) Allow(policy.ID)                 {}
func (m *counted) Steps() uint64                   { return m.steps }

func (m *counted) Evict(ok func(policy.ID) bool) (policy.ID, bool) {
	for i, e := range m.entries {
		m.steps++
		if ok(e.id) {
			if i+1 < len(m.entries) && m.entries[i+1].count == e.count {
				m.count("tie")
			}
			m.Remove(e.id)
			return e.id, true
		}
	}
	return 0, false
}

// insert puts id behind all that were used count times or less.
func (m *counted) insert(id policy.ID, count int) {
	m.now++
	e := uses{id, count, m.now}
	i, _ := slices.BinarySearchFunc(m.entries, e, func(a, b uses) int {
		return cmp.Or(cmp.Compare(a.count, b.count), cmp.Compare(a.reached, b.reached))
	})
	m.entries = slices.Insert(m.entries, i, e)
}

func (m *counted) delete(id policy.ID) (count int) {
	i := slices.IndexFunc(m.entries, func(e uses) bool { return e.id == id })
	count = m.entries[i].count
	m.entries = slices.Delete(m.entries, i, i+1)
	return count
}
