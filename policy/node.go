package policy

// node is what a policy keeps of one entry: 24 bytes, no pointers.
type node struct {
	seq        int64  // rank within its list: what goes first is lower
	prev, next uint32 // neighbours in the list; next is the slot while in a heap
	tag        uint32 // for the policy: which list, how often it was used, or its size
	place      place
	mark       uint8 // for the policy: bits about the entry
}

// place is where an entry is.
type place uint8

const (
	absent   place = iota
	listed         // in a list, not refused since it was put there
	refused        // known by its node only
	returned       // in a heap: refused once, and named by Allow since
)

// nodes is the table of all entries, by ID. Links are ID + 1; 0 is none.
type nodes struct {
	pages[node]
}

// enter makes room for id and returns its node.
func (t *nodes) enter(id ID) *node {
	t.reach(uint32(id))
	n := t.at(uint32(id))
	if n.place != absent {
		panic("policy: adding an entry that is resident")
	}
	return n
}

// resident returns the node of a resident id.
func (t *nodes) resident(id ID) *node {
	n := t.at(uint32(id))
	if n.place == absent {
		panic("policy: the entry is not resident")
	}
	return n
}
