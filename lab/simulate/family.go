package simulate

import (
	"math"

	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/policy"
)

// family is a store of the chunks of a hybrid model. Each block of the trace has a
// piece for each group; the groups that are full are one. It says at each moment
// what Groups.Needs says, with no more cleverness than the length of a trace asks for.
//
// Its shelves are DRAM, or DRAM and a disk: what hits comes to DRAM, and what DRAM lets
// go is written to the disk, if that lacks it.
type family struct {
	trace   *Trace
	groups  []GroupPieces
	keep    Keep
	shelves []*groupShelf

	users []int  // by piece: the last request that used it
	cut   []bool // by block: it is the last of a prompt and no whole block
	tree  lineage
	alive liveness

	turn   int   // number of the request at hand, from 1 on
	loaded int64 // bytes that hits needed
	below  int64 // of these, what only the disk had
	lost   int64 // tokens that the full groups had and another cut off
}

// GroupPieces are the pieces of one group, one for each block of a trace.
type GroupPieces struct {
	index.Group
	Bytes int64 // of a piece
}

// newFamily makes a store without shelves; see addShelf.
func newFamily(t *Trace, groups []GroupPieces, keep Keep) *family {
	f := &family{
		trace: t, groups: groups, keep: keep,
		users: make([]int, t.Distinct()*len(groups)), cut: make([]bool, t.Distinct()), tree: newLineage(t.parents),
	}
	for i, req := range t.requests {
		if at := t.start(i); req.end-at > req.tokens/t.blockTokens {
			f.cut[t.blocks[req.end-1]] = true
		}
	}
	f.alive = newLiveness(f)
	return f
}

// addShelf puts a shelf under the others.
func (f *family) addShelf(name string, capacity int64) error {
	p := policy.Policy(unused{})
	if name == Infinite {
		capacity = math.MaxInt64
	} else {
		var err error
		if p, err = policy.New(name, capacity); err != nil {
			return err
		}
	}
	s := newGroupShelf(f, capacity, p)
	if n := len(f.shelves); n > 0 {
		f.shelves[n-1].below = s
	}
	f.shelves = append(f.shelves, s)
	return nil
}

func (f *family) piece(b uint32, g int) uint32 { return b*uint32(len(f.groups)) + uint32(g) }
func (f *family) block(p uint32) uint32        { return p / uint32(len(f.groups)) }
func (f *family) group(p uint32) int           { return int(p % uint32(len(f.groups))) }

// has reports whether a piece is on a shelf.
func (f *family) has(p uint32) bool {
	for _, s := range f.shelves {
		if s.in[p] {
			return true
		}
	}
	return false
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
	return (len(f.groups) == 1 || !f.cut[b]) && f.eachNeed(b, f.has)
}

// request plays one prompt and returns how many of its blocks hit.
func (f *family) request(blocks []uint32) (hit int) {
	f.turn++
	run := 0
	for run < len(blocks) && f.has(f.piece(blocks[run], 0)) {
		run++
	}
	hit = run
	for hit > 0 && !f.usable(blocks[hit-1]) {
		hit--
	}
	for _, b := range blocks[:run] {
		f.users[f.piece(b, 0)] = f.turn
	}
	f.lost += int64(run-hit) * int64(f.trace.blockTokens)
	f.load(blocks[:hit])
	f.store(blocks, hit, run)
	for _, s := range f.shelves {
		s.enter(blocks)
	}
	f.alive.next()
	return hit
}

// load brings to DRAM what the prefix that hit needs. It stays on all shelves.
func (f *family) load(blocks []uint32) {
	var missing []uint32
	take := func(p uint32) bool {
		f.users[p] = f.turn
		size := f.groups[f.group(p)].Bytes
		if f.loaded += size; !f.shelves[0].in[p] {
			f.below += size
			missing = append(missing, p)
		}
		return true
	}
	for _, b := range blocks {
		take(f.piece(b, 0))
	}
	if n := len(blocks); n > 0 {
		f.eachNeed(blocks[n-1], take)
	}
	for _, p := range missing {
		if !f.shelves[0].admit(p) {
			return
		}
	}
}

// store brings to DRAM what the request brings, in the order of the prompt, as far as
// there is room.
func (f *family) store(blocks []uint32, hit, run int) {
	offered := map[uint32]bool{}
	whole := len(blocks)
	if whole > 0 && f.cut[blocks[whole-1]] {
		whole--
	}
	index.EachResumePoint(hit, min(run, whole), whole, func(end int) {
		f.eachNeed(blocks[end-1], func(p uint32) bool {
			offered[p] = true
			return true
		})
	})
	for _, b := range blocks {
		for g := range f.groups {
			p := f.piece(b, g)
			switch {
			case f.has(p):
				if offered[p] {
					f.users[p] = f.turn
				}
			case g > 0 && !offered[p]:
			case !f.shelves[0].admit(p):
				return
			}
		}
	}
}
