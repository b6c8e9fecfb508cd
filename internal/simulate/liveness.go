package simulate

import "github.com/kvstored/kvstored/policy"

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

// liveness counts which pieces a live boundary needs: a block at which all that
// any group needs is resident. What no live boundary needs is dead; Dead lets it go
// before anything that the policy would choose, but for full pieces that were used
// since they came, and pieces that the policy knows as proven: these show where
// prompts part, and the policy's choice is better.
type liveness struct {
	*family
	live  []bool   // by block
	count []uint32 // by piece: the live boundaries that need it, of a full one all at or below it
	cold  []uint32 // dead pieces, the next to go first; some are dead no more
	later []uint32 // of those, what the request at hand uses
}

func newLiveness(f *family) liveness {
	return liveness{family: f, live: make([]bool, len(f.kids)), count: make([]uint32, len(f.in))}
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

// descend looks at the boundaries at b and behind it that need number i of the pieces of a group.
func (l *liveness) descend(b uint32, i, g int) {
	from, to := l.groups[g].Needs(0, l.tree.depth[b]*l.trace.blockTokens)
	if i < from || i >= to {
		return
	}
	l.look(b)
	for kid := l.tree.kid[b]; kid != 0; kid = l.tree.next[kid-1] {
		if l.in[l.piece(kid-1, 0)] || l.live[kid-1] {
			l.descend(kid-1, i, g)
		}
	}
}

// look counts a boundary that has become live, or has ceased to be.
func (l *liveness) look(b uint32) {
	now := l.in[l.piece(b, 0)] && l.usable(b)
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
	l.count[p]--
	l.offer(p)
}

// dead reports whether a piece goes before any that the policy would choose.
func (l *liveness) dead(p uint32) bool {
	return l.in[p] && l.count[p] == 0 && (l.group(p) > 0 || !l.reused[p])
}

// offer puts a piece among the cold ones if it is dead.
func (l *liveness) offer(p uint32) {
	if l.keep == Dead && l.dead(p) {
		l.cold = append(l.cold, p)
	}
}

// first takes out the next dead piece that may go.
func (l *liveness) first() (p uint32, found bool) {
	for len(l.cold) > 0 {
		p, l.cold = l.cold[0], l.cold[1:]
		switch {
		case !l.dead(p), l.leaver != nil && l.leaver.Proven(policy.ID(p)):
		case l.users[p] == l.turn:
			l.later = append(l.later, p)
		case l.group(p) > 0 || l.kids[l.block(p)] == 0:
			return p, true // else it is offered again when its last kid goes
		}
	}
	return 0, false
}

// next ends the request at hand.
func (l *liveness) next() {
	l.cold = append(l.cold, l.later...)
	l.later = l.later[:0]
}
