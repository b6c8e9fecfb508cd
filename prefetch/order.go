package prefetch

import (
	"bytes"
	"cmp"
	"slices"
	"sort"

	"github.com/kvstored/kvstored/key"
)

// Prompt is one of several that wait to be run, for Order.
type Prompt struct {
	Chain     *key.Chain
	Cached    int // leading chunks that need not be computed whatever runs before
	Overtaken int // prompts that came later and were run before it already
}

// Order returns the numbers of prompts, which are given in the order in which
// they came, in the order in which to run them: what two of them share is best
// used if they run one after the other. Without a bound that is depth first
// over the tree of their prefixes, which no other order exceeds in what
// neighbours share. Of several subtrees the one with the longest prefix that
// is cached or shared comes first, then the one that came first.
//
// No prompt is overtaken more than bound times: counting Overtaken, so many
// prompts that came later run before it at most. Who has been overtaken so
// often goes next, and the tree is followed from there. So 0 is the order in
// which they came.
func Order(prompts []Prompt, bound int) []int {
	t := newForest(prompts)
	t.arrange(0, len(prompts), 0)
	return t.walk(bound)
}

// forest is prompts sorted by their hashes: the tree of their prefixes, with
// what neighbours share.
type forest struct {
	prompts []Prompt
	sorted  []int // numbers of prompts
	shared  []int // chunks that sorted[i] shares with sorted[i-1]
	seq     []int // numbers of prompts, depth first, the best first
	common  []int // chunks that seq[i] shares with seq[i-1]
}

func newForest(prompts []Prompt) *forest {
	t := &forest{prompts: prompts, sorted: make([]int, len(prompts)), shared: make([]int, len(prompts))}
	for i := range t.sorted {
		t.sorted[i] = i
	}
	slices.SortFunc(t.sorted, func(a, b int) int {
		return cmp.Or(compare(prompts[a].Chain, prompts[b].Chain), cmp.Compare(a, b))
	})
	for i := 1; i < len(t.sorted); i++ {
		t.shared[i] = shared(prompts[t.sorted[i-1]].Chain, prompts[t.sorted[i]].Chain)
	}
	return t
}

// shared is how many leading chunks two chains have in common. Hashes chain:
// where two are equal, so is all before. A client whose hashes do not gets a
// worse order.
func shared(a, b *key.Chain) int {
	if a.Space != b.Space {
		return 0
	}
	return sort.Search(min(a.Len(), b.Len()), func(i int) bool { return a.Hashes[i] != b.Hashes[i] })
}

func compare(a, b *key.Chain) int {
	if c := bytes.Compare(a.Space[:], b.Space[:]); c != 0 {
		return c
	}
	n := shared(a, b)
	if n == a.Len() || n == b.Len() {
		return cmp.Compare(a.Len(), b.Len())
	}
	return bytes.Compare(a.Hashes[n][:], b.Hashes[n][:])
}

// part is sorted[from:to]: a prompt, or all that share more than the others.
type part struct{ from, to, best, first int }

// arrange appends sorted[from:to], which share their first chunks, to seq:
// subtree by subtree, the best first. The first of it shares so much with
// the prompt before.
func (t *forest) arrange(from, to, common int) {
	if to-from <= 1 {
		for _, p := range t.sorted[from:to] {
			t.seq, t.common = append(t.seq, p), append(t.common, common)
		}
		return
	}
	least := slices.Min(t.shared[from+1 : to])
	var parts []part
	for at := from; at < to; {
		end := at + 1
		for end < to && t.shared[end] > least {
			end++
		}
		parts = append(parts, t.part(at, end))
		at = end
	}
	slices.SortFunc(parts, func(a, b part) int {
		return cmp.Or(cmp.Compare(b.best, a.best), cmp.Compare(a.first, b.first))
	})
	for i, p := range parts {
		if i > 0 {
			common = least
		}
		t.arrange(p.from, p.to, common)
	}
}

func (t *forest) part(from, to int) part {
	p := part{from: from, to: to, first: t.sorted[from]}
	for i := from; i < to; i++ {
		p.first = min(p.first, t.sorted[i])
		p.best = max(p.best, t.prompts[t.sorted[i]].Cached)
		if i > from {
			p.best = max(p.best, t.shared[i])
		}
	}
	return p
}

// walk goes through seq from its start, but leaves it for a prompt that must not be
// overtaken again, and goes on from there: to the neighbour that shares more.
func (t *forest) walk(bound int) []int {
	line := newLine(t)
	passed := make([]int, len(t.prompts)) // how often each was overtaken; -1: it has run
	for i := range passed {
		passed[i] = max(0, t.prompts[i].Overtaken)
	}
	out := make([]int, 0, len(t.prompts))
	oldest := 0
	for at := line.first; len(out) < len(t.prompts); at = line.take(at) {
		for passed[oldest] < 0 {
			oldest++
		}
		// The oldest of those before it that must wait no longer.
		for p := oldest; p < t.seq[at]; p++ {
			if passed[p] >= bound {
				at = line.place[p]
				break
			}
		}
		now := t.seq[at]
		for p := oldest; p < now; p++ {
			if passed[p] >= 0 {
				passed[p]++
			}
		}
		passed[now] = -1
		out = append(out, now)
	}
	return out
}

// line is the places of seq that have not run, and what each shares with the
// one before it in the line.
type line struct {
	first      int
	next, prev []int // by place; behind the ends are len(seq) and -1
	common     []int
	place      []int // by prompt
}

func newLine(t *forest) *line {
	n := len(t.seq)
	l := &line{next: make([]int, n), prev: make([]int, n+1), common: append(slices.Clone(t.common), 0), place: make([]int, n)}
	for i, p := range t.seq {
		l.next[i], l.prev[i], l.place[p] = i+1, i-1, i
	}
	l.prev[n] = n - 1
	return l
}

// take takes a place out and returns the one to go on with: the neighbour it
// shares more with or, where it shares nothing, the first.
func (l *line) take(at int) int {
	before, after := l.prev[at], l.next[at]
	left, right := l.common[at], l.common[after]
	l.common[after] = min(left, right)
	l.prev[after] = before
	if before >= 0 {
		l.next[before] = after
	} else {
		l.first = after
	}
	switch {
	case left > right:
		return before
	case right > 0:
		return after
	}
	return l.first
}
