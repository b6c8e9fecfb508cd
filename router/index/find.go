package index

import (
	"fmt"
	"math/bits"
	"slices"
	"sync"
)

// Find appends to dst what each worker has of a prompt, given the sequence
// hashes of its blocks: all workers that can use some of it, which are those that
// have the first block where all groups are full, in the order of
// [Index.Workers]. It takes no lock. While the shard changes, each worker's
// depth is that of some moment during the call.
//
// Equal sets of holders along a chain mean that nothing changed between, since a
// holder of a block holds all before it. So the search looks at blocks 0, 1, 3,
// 7, ... as long as there is one holder, and halves where sets differ. Groups that
// are not full come after that: from the end of the full ones it goes back block
// by block until each worker has what its windows and states need; each block counts
// as of some moment during the call.
func (s *Shard) Find(dst []Match, hashes []uint64, o FindOptions) []Match {
	f := finders.Get().(*finder)
	f.hashes, f.count, f.tokens = hashes, len(hashes), nil
	dst = f.run(dst, s, o)
	f.hashes = nil
	finders.Put(f)
	return dst
}

// FindTokens is [Shard.Find] for a prompt's tokens. It hashes no further than it
// looks.
func (s *Shard) FindTokens(dst []Match, tokens []uint32, o FindOptions) ([]Match, error) {
	if s.config.Hash.Opaque() {
		return dst, fmt.Errorf("find tokens, %s: %w", s.name, ErrNoHash)
	}
	f := finders.Get().(*finder)
	f.own = f.own[:0]
	f.hashes, f.count, f.tokens = f.own, s.config.Hash.Blocks(len(tokens), s.config.BlockTokens), tokens
	dst = f.run(dst, s, o)
	f.own, f.hashes, f.tokens = f.hashes, nil, nil
	finders.Put(f)
	return dst, nil
}

var finders = sync.Pool{New: func() any { return new(finder) }}

// finder is one search.
type finder struct {
	shard  *Shard
	t      *tree
	hashes []uint64 // of the first blocks
	count  int      // blocks of the prompt
	tokens []uint32 // from which further hashes are made; nil: there are all
	own    []uint64 // room for hashes

	all    []element // the holders of block 0
	now    []element // the holders before the next change: all, or in a room
	rooms  [2][]element
	depths [][Media]int32 // of all

	ahead [maxSteps]look // at 0, 1, 3, 7, ...
	steps int            // how many of them there are

	seek seek
}

// maxSteps is how many places are looked at together: those of a prompt of two
// billion blocks.
const maxSteps = 32

// look is a block where the search was.
type look struct {
	at    int
	set   setID
	word  uint64 // the block's cover, with its version
	block *block // nil: none has it
}

// stands reports whether the set is still what the look saw. An id may be used
// again once no block has it: two looks that saw one id saw one set only if the
// first still stands after the second.
func (l look) stands() bool { return !l.set.stored() || l.block.cover.Load() == l.word }

func (f *finder) run(dst []Match, s *Shard, o FindOptions) []Match {
	if f.count == 0 {
		return dst
	}
	from := len(dst)
	for found := false; !found; {
		dst, found = f.attempt(dst[:from], s.index.workers.Load(), s, o)
	}
	clear(f.ahead[:f.steps]) // a tree that was replaced is free to go
	f.shard, f.t = nil, nil
	return dst
}

// attempt searches once, for workers that were registered before it. It reports false
// if a block, or who has a slot, has changed meanwhile.
func (f *finder) attempt(dst []Match, r *registry, s *Shard, o FindOptions) (all []Match, found bool) {
	f.shard, f.t = s, s.tree.Load()
	exact, changed := f.search(o)
	switch {
	case changed || f.t.partial != 0 && !f.usable():
		return dst, false
	case f.t.partial != 0:
		dst = f.seek.matches(dst, r, int32(s.config.BlockTokens))
	default:
		dst = f.matches(dst, r, exact)
	}
	return dst, s.index.workers.Load().reused == r.reused
}

// hash returns the hash of a block.
func (f *finder) hash(at int) uint64 {
	for len(f.hashes) <= at {
		var parent Parent
		if n := len(f.hashes); n > 0 {
			parent = After(f.hashes[n-1])
		}
		c := &f.shard.config
		f.hashes = append(f.hashes, c.Hash.next(parent, f.tokens, len(f.hashes), c.BlockTokens))
	}
	return f.hashes[at]
}

// look finds a block and its set of holders.
func (f *finder) look(at int) look {
	key := f.hash(at)
	for c := f.t.table.start(key); ; {
		n := c.next()
		if n == 0 {
			return look{at: at}
		}
		b := f.t.blocks.at(n)
		if word, found := b.read(key); found {
			return look{at, setID(word), word, b}
		}
	}
}

// place is where step i looks: 0, 1, 3, 7, ... and the last block.
func (f *finder) place(i int) int { return min(1<<i-1, f.count-1) }

// step is the look at place i.
func (f *finder) step(i int) look {
	if i < f.steps {
		return f.ahead[i]
	}
	return f.look(f.place(i))
}

// lookAhead looks at all places at once, where no hashes need to be made for
// that.
func (f *finder) lookAhead() {
	if f.steps = 0; f.tokens != nil {
		return
	}
	f.steps = min(bits.Len(uint(f.count-1))+1, maxSteps)
	for i := range f.steps {
		f.ahead[i] = look{at: f.place(i)}
	}
	f.lookAt(f.ahead[:f.steps])
}

// lookAt looks at several places so that their waits for memory overlap.
func (f *finder) lookAt(all []look) {
	var buckets [maxSteps]*bucket
	var tags [maxSteps]uint32
	for i := range all {
		buckets[i], tags[i] = f.t.table.home(f.hash(all[i].at))
	}
	for i := range all {
		if n := buckets[i].first(tags[i]); n != 0 {
			all[i].block = f.t.blocks.at(n)
			all[i].block.key.Load()
		}
	}
	for i := range all {
		l := &all[i]
		if l.block == nil {
			if buckets[i].passed.Load() == 0 {
				continue // it is nowhere
			}
		} else if word, found := l.block.read(f.hash(l.at)); found {
			l.set, l.word = setID(word), word
			continue
		}
		*l = f.look(l.at)
	}
}

// search counts how far each worker has the prompt. exact says that it went to
// the end; changed, that a block that it had looked at changed meanwhile, so
// that it must begin anew. Then the writer has done something: searches wait for
// no lock, but one may follow another.
func (f *finder) search(o FindOptions) (exact, changed bool) {
	f.lookAhead()
	f.all, f.depths = f.all[:0], f.depths[:0]
	low := f.step(0)
	if low.set == empty {
		return true, false
	}
	if !f.begin(low) {
		return false, true
	}
	exact = true
	deepest := low
	for i := 1; low.at < f.count-1 && low.set != empty; i++ {
		if o.EarlyExit && f.t.partial == 0 && f.alone() {
			exact = false
			break
		}
		high := f.step(i)
		if !f.between(low, high, &deepest) {
			return false, true
		}
		low = high
		if len(f.now) == 0 {
			break // nothing but groups that are not full
		}
	}
	if low.set != empty {
		deepest = low
	}
	f.note(int32(low.at + 1)) // of those that are left
	if now := f.shard.index.ticks.Load(); deepest.block.stamp.Load() < now {
		deepest.block.stamp.Store(now) // for the budget
	}
	return exact, false
}

// begin takes in the holders of the first block.
func (f *finder) begin(l look) bool {
	var same bool
	if f.all, same = l.block.content(f.all, l.word, f.t.sets); !same {
		return false
	}
	f.all = f.fullOnly(f.all)
	f.now = f.all
	f.depths = slices.Grow(f.depths, len(f.all))[:len(f.all)]
	clear(f.depths)
	return true
}

// between notes all changes between two blocks, and the last block there that
// has a holder. It reports false if a block has changed.
func (f *finder) between(low, high look, deepest *look) bool {
	if low.set != empty {
		*deepest = low
	}
	if low.set == high.set {
		return low.stands() && high.stands() // either may have been looked at first
	}
	if low.at+1 == high.at {
		return f.change(high)
	}
	if f.t.partial != 0 {
		if same, changed := f.seek.alike(f, low, high); same || changed {
			return !changed
		}
	}
	gap := high.at - low.at
	if f.tokens != nil || gap < 8 {
		middle := f.look(low.at + gap/2)
		return f.between(low, middle, deepest) && f.between(middle, high, deepest)
	}
	quarters := [3]look{{at: low.at + gap/4}, {at: low.at + gap/2}, {at: low.at + gap/4*3}} // in one wait, half the rounds
	f.lookAt(quarters[:])
	for _, q := range quarters {
		if !f.between(low, q, deepest) {
			return false
		}
		low = q
	}
	return f.between(low, high, deepest)
}

// change notes the holders that end, or get farther, at a block.
func (f *finder) change(at look) bool {
	then := f.rooms[0][:0]
	if at.set != empty {
		var same bool
		if then, same = at.block.content(then, at.word, f.t.sets); !same {
			return false
		}
		then = f.fullOnly(then)
	}
	f.note(int32(at.at))
	f.now = then
	f.rooms[0], f.rooms[1] = f.rooms[1], then
	return true
}

// note gives a depth to all that is in now, in the media from its level on. Holders
// that go on get a greater one later.
func (f *finder) note(depth int32) {
	if len(f.now) > 0 && &f.now[0] == &f.all[0] {
		for i, e := range f.all {
			f.reaches(i, e, depth)
		}
		return
	}
	i, few := 0, 8*len(f.now) < len(f.all)
	for _, e := range f.now {
		c := e.column()
		if few {
			i += search(f.all[i:], c)
		}
		for i < len(f.all) && f.all[i].column() < c {
			i++
		}
		if i == len(f.all) {
			return
		}
		if f.all[i].column() != c {
			continue // it came while the search went on
		}
		f.reaches(i, e, depth)
		i++
	}
}

// search returns the place of the first element of a column or a later one.
func search(all []element, c column) int {
	low, high := 0, len(all)
	for low < high {
		if middle := int(uint(low+high) / 2); all[middle].column() < c {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

// reaches gives a depth to a holder, in the media from its level on.
func (f *finder) reaches(i int, e element, depth int32) {
	if e.mask() == cover(0) { // as mostly
		f.depths[i] = [Media]int32{depth, depth, depth, depth}
		return
	}
	for level := e.mask().level(); level < Media; level++ {
		f.depths[i][level] = depth
	}
}

// alone reports whether all holders are of one worker.
func (f *finder) alone() bool {
	n := len(f.now)
	return n > 0 && f.now[0].column().slot() == f.now[n-1].column().slot()
}
