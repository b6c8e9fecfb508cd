package policy

import "github.com/kvstored/kvstored/internal/base"

// node is where one entry stands: 16 bytes, no pointers. What else a policy
// keeps of an entry is in pages of its own.
type node struct {
	seqMark    int64  // seq << 8 | mark << 2 | place
	prev, next uint32 // neighbours in the list; next is the slot while in a heap
}

const (
	placeBits = 2
	markBits  = 6
)

// seq is the rank within a list: the lower goes first.
func (n *node) seq() int64 { return n.seqMark >> (markBits + placeBits) }
func (n *node) setSeq(seq int64) {
	const low = markBits + placeBits
	n.seqMark = seq<<low | n.seqMark&(1<<low-1)
}

// mark is what a policy makes of it: six bits.
func (n *node) mark() uint8 { return uint8(n.seqMark) >> placeBits }
func (n *node) setMark(m uint8) {
	const all = (1<<markBits - 1) << placeBits
	n.seqMark = n.seqMark&^all | int64(m)<<placeBits&all
}

func (n *node) place() place     { return place(n.seqMark & (1<<placeBits - 1)) }
func (n *node) setPlace(p place) { n.seqMark = n.seqMark&^(1<<placeBits-1) | int64(p) }

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
	base.Pages[node]
}

// enter makes room for id, whose node has no mark then. It is false for one that is
// resident already, which stays as it is.
func (t *nodes) enter(id ID) bool {
	t.Reach(uint32(id))
	n := t.At(uint32(id))
	if n.place() != absent {
		base.Broken(errResident, id)
		return false
	}
	n.setMark(0)
	return true
}

// resident returns the node of a resident id, and nil for any other.
func (t *nodes) resident(id ID) *node {
	if uint32(id) < t.Len() {
		if n := t.At(uint32(id)); n.place() != absent {
			return n
		}
	}
	base.Broken(errAbsent, id)
	return nil
}

// What a call says that its owner may not make. The policy stays as it is then.
const (
	errResident = "policy: entry %d is added, and resident already"
	errAbsent   = "policy: entry %d is not resident"
)
