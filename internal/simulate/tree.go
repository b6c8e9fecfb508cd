package simulate

import "github.com/kvstored/kvstored/policy"

// tree plays requests as a tier of the daemon does: the resident blocks are always
// a set of whole prefixes.
type tree struct {
	*store
	kids  []uint32 // how many children of a block are resident
	users []int    // the last request that used a block
	turn  int      // number of the request at hand
}

func newTree(s *store) *tree {
	return &tree{store: s, kids: make([]uint32, len(s.parents)), users: make([]int, len(s.parents))}
}

func (t *tree) request(at int, blocks []uint32) (prefix, hits int) {
	t.turn++
	for prefix < len(blocks) && t.has(blocks[prefix]) {
		t.users[blocks[prefix]] = t.turn
		prefix++
	}
	stored := prefix
	for stored < len(blocks) && t.admit(blocks[stored], stored-prefix) {
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
		if up := t.parents[b]; up != 0 {
			t.kids[up-1]++
		}
	}
	if stored > 0 { // all others have a child
		t.policy.Allow(policy.ID(blocks[stored-1]))
	}
	return prefix, prefix
}

// admit makes room for b beside what else is on its way in.
func (t *tree) admit(b uint32, coming int) bool {
	t.policy.Miss(hashOf(b), 1)
	for t.n+coming >= t.capacity {
		id, found := t.policy.Evict(t.goes)
		if !found {
			return false
		}
		t.drop(uint32(id))
		if up := t.parents[id]; up != 0 {
			if t.kids[up-1]--; t.kids[up-1] == 0 && t.users[up-1] != t.turn {
				t.policy.Allow(policy.ID(up - 1))
			}
		}
	}
	return true
}

// goes reports whether a block can be evicted now.
func (t *tree) goes(id policy.ID) bool { return t.kids[id] == 0 && t.users[id] != t.turn }
