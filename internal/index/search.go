package index

import (
	"math/bits"
	"slices"
)

// Source says which of chunks from..to of a group are there: it sets bit 0 of
// the word for chunk from, and so on. They are 64 at most.
type Source interface {
	There(group, from, to int) uint64
	// May says at the ends of which of steps from..to of the grid, 64 at most, a
	// prefix may be usable, in the same way: a guess that costs little and leaves out none.
	May(from, to int) uint64
}

// Search finds the longest usable prefix. The zero Search is ready; one that is used
// again allocates nothing. It is not safe for concurrent use.
type Search struct {
	columns []column
	source  Source
}

// Result is what a Search has found.
type Result struct {
	Tokens int // of the longest usable prefix; those that were skipped if there is none
	// Lacks has a bit for each group that lacks something it needs at the most
	// tokens that were searched: the groups that made the prefix shorter.
	Lacks uint64
}

// Longest returns the longest prefix of more than skip and at most most tokens that
// is usable: of each group that is not full, Needs is there. The full groups are
// the caller's, who knows that they have all of most. The chunks before skip count
// as there. Of each group only what lies between the answer and most, and the
// window before, is asked for.
func (s *Search) Longest(f Family, skip, most int, source Source) Result {
	var one [1]int
	found, lacks := s.search(one[:0], f, skip, most, 1, source)
	if len(found) == 0 {
		return Result{Tokens: skip, Lacks: lacks}
	}
	return Result{Tokens: found[0], Lacks: lacks}
}

// Lengths appends the usable prefixes of which Longest returns the first, the longest
// first, until there are limit of them. Nothing is asked for twice.
func (s *Search) Lengths(dst []int, f Family, skip, most, limit int, source Source) []int {
	dst, _ = s.search(dst, f, skip, most, limit, source)
	return dst
}

// search is Lengths, and the Lacks of Longest.
func (s *Search) search(dst []int, f Family, skip, most, limit int, source Source) (_ []int, lacks uint64) {
	grid := f.Grid()
	from, to := skip/grid, most/grid
	if to <= from {
		return dst, 0
	}
	s.start(f, grid, skip, to, source)
	for word := (to - 1) / 64; word >= from/64 && len(dst) < limit; word-- {
		ok := between(word, from, to)
		if ok != 0 {
			ok &= source.May(64*word, min(64*word+64, to))
		}
		top := word == (to-1)/64
		for i := range s.columns {
			if c := &s.columns[i]; ok != 0 || top {
				has := c.at(word)
				if top && has>>((to-1)%64)&1 == 0 {
					lacks |= 1 << c.group
				}
				ok &= has
			}
		}
		for ; ok != 0 && len(dst) < limit; ok &^= 1 << (bits.Len64(ok) - 1) {
			dst = append(dst, (word*64+bits.Len64(ok))*grid)
		}
	}
	return dst, lacks
}

// start makes a column for each group that is not full. States come first, of
// which there are few: where there is none the others are not asked for.
func (s *Search) start(f Family, grid, skip, to int, source Source) {
	s.source = source
	n := 0
	for _, states := range [...]bool{true, false} {
		for i, g := range f {
			if g.Kind == Full || (g.Kind == State) != states {
				continue
			}
			if n == cap(s.columns) {
				s.columns = append(s.columns[:n], column{})
			}
			s.columns = s.columns[:n+1]
			s.columns[n].reset(s, i, g, grid/g.Chunk, skip/g.Chunk, to*grid/g.Chunk)
			n++
		}
	}
	s.columns = s.columns[:n]
}

// between is the bits of a word that stand for from..to.
func between(word, from, to int) uint64 {
	lo, hi := max(0, from-word*64), min(64, to-word*64)
	if lo >= hi {
		return 0
	}
	return ^uint64(0) << lo & (^uint64(0) >> (64 - hi))
}

// column is the chunks of one group. Its words are asked for from the last one
// on, as far as they are needed.
type column struct {
	search *Search
	Group
	group int // number in the family
	step  int // chunks of the group for one step of the grid
	first int // chunks before count as there
	n     int // chunks
	words []uint64
	have  int // words[have:] are known
	low   int // chunks low..high are there, if high > low
	high  int
	last  int    // the word whose usable ends are in ends, or -1
	ends  uint64 // see usable
}

func (c *column) reset(s *Search, group int, g Group, step, first, n int) {
	words := (n + 63) / 64
	*c = column{
		search: s, Group: g, group: group, step: step, first: first, n: n,
		words: slices.Grow(c.words[:0], words)[:words], have: words, last: -1,
	}
}

// word is whether chunks 64*i and on are there.
func (c *column) word(i int) uint64 {
	for ; c.have > i; c.have-- {
		at := c.have - 1
		from, to := max(c.first, 64*at), min(64*at+64, c.n)
		var w uint64
		if from < to {
			w = c.search.source.There(c.group, from, to) & between(0, 0, to-from) << (from - 64*at)
		}
		c.words[at] = w | between(at, 0, c.first)
	}
	return c.words[i]
}

// before counts the chunks directly before chunk i that are there, as far as most
// of them; all of most where they reach the first that counts. Calls have
// falling i, so that each word is counted once.
func (c *column) before(i, most int) int {
	if i <= c.low || i > c.high {
		c.low, c.high = i, i
	}
	for c.low > c.first && i-c.low < most {
		w := c.word((c.low - 1) / 64)
		ones := bits.LeadingZeros64(^(w << (63 - (c.low-1)%64)))
		if ones == 0 {
			return i - c.low
		}
		c.low -= ones
	}
	if c.low <= c.first {
		return most
	}
	return i - c.low
}

// at is the usable ends of a word of the grid.
func (c *column) at(word int) (out uint64) {
	if c.step == 1 {
		return c.usable(word)
	}
	for i := 63; i >= 0; i-- {
		chunk := (64*word+i+1)*c.step - 1
		if chunk >= c.n {
			continue
		}
		if w := chunk / 64; w != c.last {
			c.last, c.ends = w, c.usable(w)
		}
		out |= c.ends >> (chunk % 64) & 1 << i
	}
	return out
}

// usable has a bit for each chunk of a word at whose end the need of the group is there.
func (c *column) usable(word int) uint64 {
	switch c.Kind {
	case Window:
		return c.runs(word, (c.Tokens+c.Chunk-1)/c.Chunk)
	case Local:
		return c.locals(word)
	default:
		return c.word(word)
	}
}

// runs has a bit for each chunk that ends a run of w chunks, or one from the
// first that counts.
func (c *column) runs(word, w int) uint64 {
	b, out := c.word(word), uint64(0)
	if w <= 64 {
		out = b
		for have := 1; have < w; {
			by := min(have, w-have)
			out &= out << by
			have += by
		}
	}
	// The ones at the start of the word go on with those before it.
	lead := bits.TrailingZeros64(^b)
	behind := c.before(64*word, w-1)
	return out | between(0, w-1-behind, lead)
}

// locals has a bit for each chunk from which all chunks back to the last multiple of
// Tokens are there.
func (c *column) locals(word int) (out uint64) {
	b, base := c.word(word), 64*word
	for p := min(base+63, c.n-1); p >= base; {
		n := (p + 1) * c.Chunk
		if n%c.Tokens == 0 {
			out |= 1 << (p - base)
			p--
			continue
		}
		start := n / c.Tokens * c.Tokens / c.Chunk // of all chunks down to it
		lo := max(base, start)
		ones := bits.TrailingZeros64(^(b >> (lo - base)))
		if start < base && c.before(base, base-start) < base-start {
			ones = 0
		}
		out |= between(0, lo-base, min(lo-base+ones, p-base+1))
		p = lo - 1
	}
	return out
}
