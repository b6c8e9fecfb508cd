package simulate

import (
	"github.com/kvstored/kvstored/internal/hybrid"
	"github.com/kvstored/kvstored/policy"
)

// family is a store of the chunks of a hybrid model. Each block of the trace has a
// piece for each group; the groups that are full are one. It says at each moment
// what Groups.Needs says, with no more cleverness than the length of a trace asks for.
type family struct {
	trace    *Trace
	groups   []GroupPieces
	keep     Keep
	every    int // blocks between two boundaries beside those of Keep; 0 = none
	policy   policy.Policy
	leaver   policy.Leaver // policy, if it is one
	capacity int64         // bytes
	used     int64

	in     []bool   // by piece: resident
	reused []bool   // by piece: a request has used it since it came
	users  []int    // by piece: the last request that used it
	costs  []int64  // by piece: what it was worth when it came, in tokens
	kids   []uint32 // by block: how many blocks after it have their full piece
	cut    []bool   // by block: it is the last of a prompt and no whole block
	tree   lineage
	alive  liveness

	turn   int      // number of the request at hand, from 1 on
	coming []uint32 // pieces of the request at hand that are not resident yet
	loaded int64    // bytes that hits needed
	lost   int64    // tokens that the full groups had and another cut off
}

// GroupPieces are the pieces of one group, one for each block of a trace.
type GroupPieces struct {
	hybrid.Group
	Bytes int64 // of a piece
}

func newFamily(t *Trace, groups []GroupPieces, keep Keep, every int, capacity int64, p policy.Policy) *family {
	n := t.Distinct() * len(groups)
	f := &family{
		trace: t, groups: groups, keep: keep, every: every, policy: p, capacity: capacity,
		in: make([]bool, n), reused: make([]bool, n), users: make([]int, n), costs: make([]int64, n), kids: make([]uint32, t.Distinct()),
		cut: make([]bool, t.Distinct()), tree: newLineage(t.parents),
	}
	for i, req := range t.requests {
		if at := t.start(i); req.end-at > req.tokens/t.blockTokens {
			f.cut[t.blocks[req.end-1]] = true
		}
	}
	f.alive = newLiveness(f)
	f.leaver, _ = p.(policy.Leaver)
	if p, ok := p.(policy.MetaReader); ok {
		p.ReadMetaFrom(f.told)
	}
	return f
}

func (f *family) piece(b uint32, g int) uint32 { return b*uint32(len(f.groups)) + uint32(g) }
func (f *family) block(p uint32) uint32        { return p / uint32(len(f.groups)) }
func (f *family) group(p uint32) int           { return int(p % uint32(len(f.groups))) }

func (f *family) told(id policy.ID) policy.Meta {
	return policy.Meta{Hash: uint64(id) + 1, Size: f.groups[f.group(uint32(id))].Bytes, Cost: f.costs[id]}
}

// eachNeed calls do with the pieces that a prefix up to and with block b needs of
// groups that are not full, until do returns false.
func (f *family) eachNeed(b uint32, do func(p uint32) bool) bool {
	depth := f.tree.depth[b]
	for g := 1; g < len(f.groups); g++ {
		from, to := f.groups[g].Needs(0, depth*f.trace.blockTokens)
		at := b
		for i := to - 1; i >= from; i-- {
			if !do(f.piece(at, g)) {
				return false
			}
			at = f.trace.parents[at] - 1 // beyond the first block nothing is needed
		}
	}
	return true
}

// usable reports whether all that groups which are not full need at b is resident. A
// block that is not whole ends no prefix of a model with such groups.
func (f *family) usable(b uint32) bool {
	return (len(f.groups) == 1 || !f.cut[b]) && f.eachNeed(b, func(p uint32) bool { return f.in[p] })
}

// request plays one prompt and returns how many of its blocks hit.
func (f *family) request(blocks []uint32) (hit int) {
	f.turn++
	run := 0
	for run < len(blocks) && f.in[f.piece(blocks[run], 0)] {
		run++
	}
	hit = run
	for hit > 0 && !f.usable(blocks[hit-1]) {
		hit--
	}
	for _, b := range blocks[:run] {
		f.users[f.piece(b, 0)] = f.turn
	}
	f.loaded += int64(hit) * f.groups[0].Bytes
	f.lost += int64(run-hit) * int64(f.trace.blockTokens)
	if hit > 0 {
		f.eachNeed(blocks[hit-1], func(p uint32) bool {
			f.users[p] = f.turn
			f.loaded += f.groups[f.group(p)].Bytes
			return true
		})
	}
	f.store(blocks, hit, run)
	f.enter(blocks)
	return hit
}

// store makes room for what the request brings, in the order of the prompt, as far as there is
// some.
func (f *family) store(blocks []uint32, hit, run int) {
	offered := map[uint32]bool{}
	whole := len(blocks)
	if whole > 0 && f.cut[blocks[whole-1]] {
		whole--
	}
	hybrid.Boundaries(hit, min(run, whole), whole, f.every, func(end int) {
		f.eachNeed(blocks[end-1], func(p uint32) bool {
			offered[p] = true
			return true
		})
	})
	f.coming = f.coming[:0]
	for _, b := range blocks {
		for g := range f.groups {
			p := f.piece(b, g)
			if f.in[p] || g > 0 && !offered[p] {
				if offered[p] {
					f.users[p] = f.turn
				}
				continue
			}
			if !f.admit(p) {
				return
			}
		}
	}
}

// admit makes room for a piece.
func (f *family) admit(p uint32) bool {
	size := f.groups[f.group(p)].Bytes
	f.policy.Miss(uint64(p)+1, size)
	for f.used+size > f.capacity {
		if id, found := f.alive.first(); found {
			f.lets(id)
			f.evicted(id)
			continue
		}
		id, found := f.policy.Evict(f.goes)
		if !found {
			return false
		}
		f.evicted(uint32(id))
	}
	f.used += size
	f.users[p] = f.turn
	f.coming = append(f.coming, p)
	return true
}

// goes reports whether a piece can be evicted now.
func (f *family) goes(id policy.ID) bool {
	p := uint32(id)
	return f.users[p] != f.turn && (f.keep == Keys || f.group(p) > 0 || f.kids[f.block(p)] == 0)
}

// evicted ends the residency of a piece that the policy has forgotten. With a full
// one those of the other groups go that stand on it.
func (f *family) evicted(p uint32) {
	f.leave(p)
	if f.group(p) > 0 || f.keep == Keys {
		return
	}
	b := f.block(p)
	for g := 1; g < len(f.groups); g++ {
		if q := f.piece(b, g); f.in[q] {
			f.lets(q)
			f.leave(q)
		}
	}
	if up := f.trace.parents[b]; up != 0 {
		if f.kids[up-1]--; f.kids[up-1] == 0 {
			q := f.piece(up-1, 0)
			if f.users[q] != f.turn {
				f.policy.Allow(policy.ID(q))
			}
			f.alive.offer(q)
		}
	}
}

// lets has the policy forget a piece that goes though it is not the policy's choice.
func (f *family) lets(p uint32) {
	if f.leaver != nil {
		f.leaver.Leave(policy.ID(p))
	} else {
		f.policy.Remove(policy.ID(p))
	}
}

func (f *family) leave(p uint32) {
	f.in[p], f.reused[p] = false, false
	f.used -= f.groups[f.group(p)].Bytes
	f.alive.changed(p)
}

// enter makes what is coming resident and tells the policy of the request, its tail
// first: so its head is younger, as it is in the daemon.
func (f *family) enter(blocks []uint32) {
	for _, p := range f.coming {
		f.in[p] = true
		if up := f.trace.parents[f.block(p)]; f.group(p) == 0 && up != 0 {
			f.kids[up-1]++
		}
	}
	fresh := make(map[uint32]bool, len(f.coming))
	for _, p := range f.coming {
		fresh[p] = true
		f.alive.changed(p)
	}
	for i := len(f.coming) - 1; i >= 0; i-- { // what has no need of its own yet
		f.alive.offer(f.coming[i])
	}
	for i := len(blocks) - 1; i >= 0; i-- {
		for g := range f.groups {
			p := f.piece(blocks[i], g)
			switch {
			case fresh[p]:
				f.costs[p] = f.worth(p)
				f.policy.Add(policy.ID(p), f.told(policy.ID(p)))
			case f.in[p] && f.users[p] == f.turn:
				f.reused[p] = true
				f.policy.Touch(policy.ID(p))
			}
		}
	}
	f.alive.next()
}

// worth is the tokens that a piece makes usable: of a window or a state those from the
// live boundary before it on.
func (f *family) worth(p uint32) int64 {
	n := int64(f.trace.blockTokens)
	if f.group(p) == 0 || f.keep == Keys {
		return n
	}
	for up := f.trace.parents[f.block(p)]; up != 0 && !f.alive.live[up-1]; up = f.trace.parents[up-1] {
		n += int64(f.trace.blockTokens)
	}
	return n
}
