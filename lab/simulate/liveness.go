package simulate

// lineage is the blocks of a trace as a tree.
type lineage struct {
	depth     []int    // blocks of the prefix that ends with a block
	kid, next []uint32 // first block after one, and the next of its siblings: number + 1
}

func newLineage(parents []uint32) lineage {
	n := len(parents)
	l := lineage{make([]int, n), make([]uint32, n), make([]uint32, n)}
	for b, up := range parents { // a parent has a lower number
		l.depth[b] = 1
		if up != 0 {
			l.depth[b] = l.depth[up-1] + 1
			l.next[b], l.kid[up-1] = l.kid[up-1], uint32(b)+1
		}
	}
	return l
}

// liveness counts which pieces a live resume point needs: a block at which all that
// any group needs is resident. What no live resume point needs is dead; Dead lets it go
// before anything that the policy would choose, but for full pieces that were used
// since they came, and pieces that the policy knows as proven: these show where
// prompts part, and the policy's choice is better.
type liveness struct {
	*family
	live  []bool   // by block
	count []uint32 // by piece: the live resume points that need it, of a full one all at or below it
}

func newLiveness(f *family) liveness {
	return liveness{family: f, live: make([]bool, len(f.cut)), count: make([]uint32, len(f.users))}
}

// changed follows up on a piece that came or went.
func (l *liveness) changed(p uint32) {
	if l.keep == Keys {
		return
	}
	b, g := l.block(p), l.group(p)
	if g == 0 {
		l.look(b)
		return
	}
	l.descend(b, l.tree.depth[b]-1, g)
}

// descend looks at the resume points at b and behind it that need number i of the pieces of a group.
func (l *liveness) descend(b uint32, i, g int) {
	from, to := l.groups[g].Needs(0, l.tree.depth[b]*l.trace.blockTokens)
	if i < from || i >= to {
		return
	}
	l.look(b)
	for kid := l.tree.kid[b]; kid != 0; kid = l.tree.next[kid-1] {
		if l.has(l.piece(kid-1, 0)) || l.live[kid-1] {
			l.descend(kid-1, i, g)
		}
	}
}

// look counts a resume point that has become live, or has ceased to be.
func (l *liveness) look(b uint32) {
	now := l.has(l.piece(b, 0)) && l.usable(b)
	if now == l.live[b] {
		return
	}
	l.live[b] = now
	for up := b + 1; up != 0; up = l.trace.parents[up-1] {
		l.add(l.piece(up-1, 0), now)
	}
	l.eachNeed(b, func(p uint32) bool {
		l.add(p, now)
		return true
	})
}

func (l *liveness) add(p uint32, now bool) {
	if now {
		l.count[p]++
		return
	}
	if l.count[p]--; l.count[p] > 0 {
		return
	}
	for _, s := range l.shelves {
		s.offer(p)
	}
}

// next ends the request at hand.
func (l *liveness) next() {
	for _, s := range l.shelves {
		s.cold = append(s.cold, s.later...)
		s.later = s.later[:0]
	}
}
