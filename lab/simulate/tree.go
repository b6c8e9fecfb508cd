package simulate

import "github.com/kvstored/kvstored/policy"

// tree plays requests as a tier of the daemon does: the resident blocks are always
// a set of whole prefixes.
type tree struct {
	*store
	kids  []uint32 // how many children of a block are resident
	users []int    // the last request that used a block
	turn  int      // number of the request at hand, from 1 on
	idle  *idle    // what clients say of their sessions; nil = nothing
}

func newTree(s *store) *tree {
	return &tree{store: s, kids: make([]uint32, len(s.parents)), users: make([]int, len(s.parents))}
}

func (t *tree) request(at int, blocks []uint32) (prefix, hits int) {
	t.turn++
	if t.idle != nil {
		t.idle.arrive(t.turn-1, blocks)
		defer t.idle.leave(t.turn - 1)
	}
	for prefix < len(blocks) && t.has(blocks[prefix]) {
		t.users[blocks[prefix]] = t.turn
		prefix++
	}
	stored, wanted := prefix, t.wanted(at, blocks)
	for stored < len(blocks) && t.admit(blocks[stored], stored-prefix, stored < wanted) {
		stored++
	}
	for i := stored - 1; i >= 0; i-- {
		b := blocks[i]
		t.now = at + i
		if i < prefix {
			t.policy.Touch(policy.ID(b))
			continue
		}
		t.add(b)
		t.users[b] = t.turn
		t.adopt(b)
	}
	if stored > 0 { // all others have a child
		t.policy.Allow(policy.ID(blocks[stored-1]))
	}
	return prefix, prefix
}

// admit makes room for b beside what else is on its way in, if it is wanted so
// much that others may go for it.
func (t *tree) admit(b uint32, coming int, wanted bool) bool {
	t.policy.Miss(hashOf(b), 1)
	for t.n+coming >= t.capacity {
		if !wanted {
			return false
		}
		if b, found := t.first(); found {
			t.evicted(b)
			continue
		}
		id, found := t.policy.Evict(t.goes)
		if !found {
			return false
		}
		t.evicted(uint32(id))
	}
	return true
}

// adopt counts a new resident at its parent.
func (t *tree) adopt(b uint32) {
	if up := t.parents[b]; up != 0 {
		t.kids[up-1]++
	}
}

// first takes the next block of an idle session from the policy.
func (t *tree) first() (b uint32, found bool) {
	if t.idle == nil {
		return 0, false
	}
	if b, found = t.idle.victim(0); found {
		t.policy.Remove(policy.ID(b))
	}
	return b, found
}

// evicted drops a block, whose parent may go then.
func (t *tree) evicted(b uint32) {
	t.drop(b)
	if up := t.parents[b]; up != 0 {
		if t.kids[up-1]--; t.kids[up-1] == 0 && t.users[up-1] != t.turn {
			t.policy.Allow(policy.ID(up - 1))
		}
	}
}

// goes reports whether a block can be evicted now.
func (t *tree) goes(id policy.ID) bool { return t.kids[id] == 0 && t.users[id] != t.turn }
