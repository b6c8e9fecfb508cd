package index

import (
	"maps"
	"math/bits"
	"slices"
)

const (
	// trimSlice is how many blocks are looked at under one lock: about a millisecond.
	trimSlice = 4096
	// agesEach is how many ages are told apart between one age and twice that.
	agesEach   = 1 << ageBits
	ageBits    = 10
	ageClasses = (32-ageBits)*agesEach + agesEach
)

// ageClass is the class of an age in ticks: each age has one of its own at first, then
// ages that differ by a thousandth share one.
func ageClass(age uint32) int {
	shift := max(bits.Len32(age)-ageBits-1, 0)
	return shift<<ageBits + int(age>>shift)
}

// trim drops the coldest leaves of all shards where the budget is nearly exceeded, until
// a sixteenth of it is free. A block is as cold as when it was last stored or found, or,
// if later, a block that stood on it.
//
// Each change does its share: a slice, and more by how many bytes it has added. So a
// sweep is over before the budget is exceeded; where it is not, the change waits for it.
func (x *Index) trim(added int64) {
	limit := x.options.Bytes
	switch used := x.bytes.Load(); {
	case used <= limit-limit/64:
		return
	case used > limit:
		x.trimming.Lock()
	case !x.trimming.TryLock():
		return
	}
	defer x.trimming.Unlock()
	for share := 1 + 4*added/trimSlice; share > 0 || x.bytes.Load() > limit; share-- {
		if !x.sweep.step(x) {
			return
		}
	}
}

// sweep is a trim under way. It looks at all blocks twice: to count how many would go at
// which age, and to drop so many.
type sweep struct {
	phase  phase
	shards []*Shard // that are to be looked at in this phase
	tree   *tree    // of the first of them, as of the last slice
	next   uint32   // block of it that comes next
	up     uint32   // block that comes before that, up from the last one; or the root
	looked int64    // blocks, ever

	now     uint32
	blocks  int64             // in all shards
	ages    [ageClasses]int64 // blocks by age that go if all as old do
	age     uint32            // of the block below up
	need    int64             // blocks that are to go
	dropped int64
	oldest  int   // class from which on blocks go
	ties    int64 // how many of this class go
}

type phase uint8

const (
	idle phase = iota
	counting
	dropping
)

// step does a slice, and reports whether there was one to do.
func (w *sweep) step(x *Index) bool {
	if len(w.shards) == 0 && !w.turn(x) {
		return false
	}
	if len(w.shards) > 0 && !w.shards[0].slice(w) {
		w.shards, w.tree = w.shards[1:], nil
	}
	return true
}

// turn goes on to the next phase.
func (w *sweep) turn(x *Index) bool {
	switch limit := x.options.Bytes; {
	case w.phase == dropping && w.dropped == 0: // nothing is left that could go
		w.phase = idle
		return false
	case w.phase == counting:
		w.phase = dropping
		used := x.bytes.Load()
		w.choose(max(used-limit+limit/16, 0)*w.blocks/max(used, 1) + 1)
	case x.bytes.Load() > limit-limit/64:
		*w = sweep{phase: counting, now: x.ticks.Load(), looked: w.looked}
	default:
		w.phase = idle
		return false
	}
	w.shards = slices.Collect(maps.Values(*x.shards.Load()))
	return len(w.shards) > 0
}

// slice looks at some blocks of a shard, and reports whether there are more. A tree that
// was packed meanwhile begins anew.
func (s *Shard) slice(w *sweep) (more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.phase == dropping {
		defer s.settle()
	}
	t := s.tree.Load()
	if t != w.tree {
		w.tree, w.next, w.up = t, root+1, root
	}
	for range trimSlice {
		n, first := w.up, w.up == root
		if first {
			if w.next >= t.blocks.used || w.phase == dropping && w.dropped >= w.need {
				w.blocks += int64(t.blocks.count)
				return false
			}
			n, w.next = w.next, w.next+1
		}
		w.looked++
		if w.phase == counting {
			w.up = w.count(t.blocks.at(n), first)
		} else {
			w.up = s.shed(w, t, n)
		}
	}
	return true
}

// count counts a leaf, and the blocks below it on which nothing else stands, by their
// age. Branches are not counted: they go only after all that stands on them.
func (w *sweep) count(b *block, first bool) (up uint32) {
	if first && (b.child != 0 || b.own == empty) {
		return root
	}
	age := w.ageOf(b)
	if !first {
		age = min(age, w.age)
	}
	w.age = age
	w.ages[ageClass(age)]++
	if b.up&many != 0 {
		return root
	}
	return b.parent()
}

func (w *sweep) ageOf(b *block) uint32 { return w.now - min(b.stamp.Load(), w.now) }

// choose finds the age from which on as many blocks go as need to.
func (w *sweep) choose(need int64) {
	w.need, w.ties, w.oldest = need, need, ageClasses-1
	for w.oldest > 0 && w.ages[w.oldest] < w.ties {
		w.ties -= w.ages[w.oldest]
		w.oldest--
	}
}

// goes reports whether a block of an age goes.
func (w *sweep) goes(age uint32) bool {
	c := ageClass(age)
	if c != w.oldest {
		return c > w.oldest
	}
	w.ties--
	return w.ties >= 0
}

// shed drops a leaf that is old enough, and what is a leaf then that no worker has. It
// returns the block that it stood on, which may be next: so a whole prompt goes that was
// not used again.
func (s *Shard) shed(w *sweep, t *tree, n uint32) (up uint32) {
	b := t.blocks.at(n)
	if b.child != 0 || b.own == empty || !w.goes(w.ageOf(b)) {
		return root
	}
	t.sets.scratch = t.sets.all(t.sets.scratch[:0], b.own)
	for _, e := range t.sets.scratch {
		s.count(e.column().slot(), -e.media())
		s.disclaim(b.key.Load(), e)
	}
	for {
		up = b.parent()
		t.drop(n)
		s.mu.trimmed++
		w.dropped++
		if n, b = up, t.blocks.at(up); n == root || b.child != 0 || b.own != empty {
			return up
		}
	}
}
