package index

// siblings are the links between the children of one block. Most blocks are their
// parent's only child, so the links lie apart from the blocks.
type siblings struct {
	of   map[uint32]sibling // by the number of a block that is marked as one of many
	most int                // that there were: a map keeps its room
}

// sibling has the next child and the one before, 0 at the ends.
type sibling struct{ next, prev uint32 }

// siblingBytes is what an entry of siblings takes, about: between 15 and 30.
const siblingBytes = 24

// next returns the next child of a block's parent, 0 after the last.
func (b *blocks) next(n uint32) uint32 {
	if b.at(n).up&many == 0 {
		return 0
	}
	return b.siblings.of[n].next
}

// join makes a block the first child of a parent.
func (b *blocks) join(n, parent uint32) {
	p := b.at(parent)
	b.at(n).up = parent
	if first := p.child; first != 0 {
		b.link(first, sibling{b.next(first), n})
		b.link(n, sibling{first, 0})
		b.siblings.most = max(b.siblings.most, len(b.siblings.of))
	}
	p.child = n
}

// leave takes a block out of its parent's children.
func (b *blocks) leave(n uint32) {
	bl := b.at(n)
	var s sibling
	if bl.up&many != 0 {
		s = b.siblings.of[n]
		delete(b.siblings.of, n)
	}
	if s.prev != 0 {
		b.link(s.prev, sibling{s.next, b.siblings.of[s.prev].prev})
	} else {
		b.at(bl.parent()).child = s.next
	}
	if s.next != 0 {
		b.link(s.next, sibling{b.siblings.of[s.next].next, s.prev})
	}
}

// link puts a block between two children, or marks that it is the only one.
func (b *blocks) link(n uint32, s sibling) {
	bl := b.at(n)
	if s == (sibling{}) {
		bl.up &^= many
		delete(b.siblings.of, n)
		return
	}
	bl.up |= many
	b.siblings.of[n] = s
}
