package policy

// node is where one entry stands: 16 bytes, no pointers. What else a policy
// keeps of an entry is in pages of its own.
type node struct {
	seqPlace   int64  // seq << 2 | place
	prev, next uint32 // neighbours in the list; next is the slot while in a heap
}

// seq is the rank within a list: what goes first is lower.
func (n *node) seq() int64       { return n.seqPlace >> 2 }
func (n *node) setSeq(seq int64) { n.seqPlace = seq<<2 | n.seqPlace&3 }

func (n *node) place() place     { return place(n.seqPlace & 3) }
func (n *node) setPlace(p place) { n.seqPlace = n.seqPlace&^3 | int64(p) }

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
	if n.place() != absent {
		panic("policy: adding an entry that is resident")
	}
	return n
}

// resident returns the node of a resident id.
func (t *nodes) resident(id ID) *node {
	n := t.at(uint32(id))
	if n.place() == absent {
		panic("policy: the entry is not resident")
	}
	return n
}
