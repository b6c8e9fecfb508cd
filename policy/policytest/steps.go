package policytest

import (
	"testing"

	"github.com/kvstored/kvstored/policy"
)

// tree is what an owner with chains asks of a policy: an entry goes only when
// it is not locked and has no kids.
type tree struct {
	t      testing.TB
	policy policy.Policy
	parent []int // -1 for none
	kids   []int
	locked []bool
	gone   []bool
}

func newTree(t testing.TB, name string) *tree {
	t.Helper()
	return &tree{t: t, policy: New(t, name, 1<<20)}
}

// grow makes an entry below parent without adding it, and returns its ID.
func (r *tree) grow(parent int) int {
	r.parent = append(r.parent, parent)
	r.kids = append(r.kids, 0)
	r.locked = append(r.locked, false)
	r.gone = append(r.gone, false)
	if parent >= 0 {
		r.kids[parent]++
	}
	return len(r.parent) - 1
}

func (r *tree) add(id int) {
	m := policy.Meta{Hash: uint64(id), Size: 1}
	r.policy.Miss(m.Hash, m.Size)
	r.policy.Add(policy.ID(id), m)
}

// evict takes one victim and tells the policy what that made acceptable.
func (r *tree) evict() int {
	r.t.Helper()
	id, ok := r.policy.Evict(func(id policy.ID) bool { return !r.locked[id] && r.kids[id] == 0 })
	if !ok {
		r.t.Fatal("nothing to evict")
	}
	if r.gone[id] || r.locked[id] || r.kids[id] > 0 {
		r.t.Fatalf("evicted %d, which is gone, locked or has kids", id)
	}
	r.gone[id] = true
	if p := r.parent[id]; p >= 0 {
		if r.kids[p]--; r.kids[p] == 0 && !r.locked[p] {
			r.policy.Allow(policy.ID(p))
		}
	}
	return int(id)
}

func (r *tree) within(what string, from uint64, limit int) {
	r.t.Helper()
	if got := r.policy.Steps() - from; got > uint64(limit) {
		r.t.Errorf("%s: %d steps, want at most %d", what, got, limit)
	}
}

// alternate has every second entry locked: a scan that starts over would
// inspect k²/2.
func alternate(t *testing.T, name string) {
	const k = 2000
	r := newTree(t, name)
	for range k {
		locked := r.grow(-1)
		r.locked[locked] = true
		r.add(locked)
		r.add(r.grow(-1))
	}
	from := r.policy.Steps()
	for range k {
		r.evict()
	}
	r.within("evicting every second entry", from, k*21/10)
}

// chains evicts 200 chains of 32 completely, as commits leave them: whole
// chains added tail first; chunk by chunk with the ancestors touched; or
// chunk by chunk, all chains side by side, and nothing touched.
func chains(t *testing.T, name string) {
	const n, depth = 200, 32
	layouts := []struct {
		name  string
		build func(r *tree)
		limit int
	}{
		{"tail first", func(r *tree) {
			for range n {
				ids := r.chain(depth)
				for i := depth - 1; i >= 0; i-- {
					r.add(ids[i])
				}
			}
		}, n * depth * 21 / 10},
		{"one chunk a commit, ancestors touched", func(r *tree) {
			for range n {
				ids := r.chain(depth)
				for i := range ids {
					r.add(ids[i])
					for j := i - 1; j >= 0; j-- {
						r.policy.Touch(policy.ID(ids[j]))
					}
				}
			}
		}, n * depth * 41 / 10},
		{"one chunk a commit, side by side", func(r *tree) {
			all := make([][]int, n)
			for i := range all {
				all[i] = r.chain(depth)
			}
			for d := range depth {
				for _, ids := range all {
					r.add(ids[d])
				}
			}
		}, n * depth * 41 / 10},
	}
	for _, l := range layouts {
		r := newTree(t, name)
		l.build(r)
		from := r.policy.Steps()
		for range n * depth {
			r.evict()
		}
		r.within(l.name, from, l.limit)
	}
}

func (r *tree) chain(depth int) []int {
	ids := make([]int, depth)
	parent := -1
	for i := range ids {
		parent = r.grow(parent)
		ids[i] = parent
	}
	return ids
}

// pinned has everything that would go first locked, while entries are put in
// for others that go.
func pinned(t *testing.T, name string) {
	const k = 2000
	r := newTree(t, name)
	for range k {
		id := r.grow(-1)
		r.locked[id] = true
		r.add(id)
	}
	r.add(r.grow(-1))
	r.evict() // the first pass
	r.add(r.grow(-1))
	from := r.policy.Steps()
	for range k {
		r.evict()
		r.add(r.grow(-1))
	}
	r.within("one victim a put", from, 3*k)
	// All of them come back, in the order of the model; that costs each a
	// return, not each victim a scan.
	from = r.policy.Steps()
	for id := range k {
		r.locked[id] = false
		r.policy.Allow(policy.ID(id))
	}
	for range k + 1 {
		r.evict()
	}
	r.within("evicting what was pinned", from, 4*k+1)
}
