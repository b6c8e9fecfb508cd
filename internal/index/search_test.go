package index_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/internal/index"
)

// chunks is which chunks of each group are there.
type chunks [][]bool

func (c chunks) There(group, from, to int) (w uint64) {
	if to-from > 64 || from >= to {
		panic(fmt.Sprintf("chunks %d to %d are asked for", from, to))
	}
	for i := from; i < to; i++ {
		if c[group][i] {
			w |= 1 << (i - from)
		}
	}
	return w
}

// May says nothing.
func (c chunks) May(int, int) uint64 { return ^uint64(0) }

// tokensNeeded is the definition, token by token: does a prefix of n tokens need token t?
func tokensNeeded(g index.Group, n, t int) bool {
	switch g.Kind {
	case index.Window:
		return t >= n-g.Tokens
	case index.Local:
		return t >= n-n%g.Tokens
	case index.State:
		return t == n-1
	}
	return true
}

// usable is the definition of a usable prefix, token by token: a token
// that is needed is in a chunk that is there.
func usable(f index.Family, there chunks, skip, n int) bool {
	for i := range f {
		if !has(f, there, i, skip, n) {
			return false
		}
	}
	return true
}

func has(f index.Family, there chunks, i, skip, n int) bool {
	for t := skip / f[i].Chunk * f[i].Chunk; t < n; t++ {
		if tokensNeeded(f[i], n, t) && !there[i][t/f[i].Chunk] {
			return false
		}
	}
	return true
}

// longest is the naive answer.
func longest(f index.Family, there chunks, skip, most int) (r index.Result) {
	most = most / f.Grid() * f.Grid()
	r.Tokens = skip
	if most <= skip {
		return r
	}
	for i, g := range f {
		if g.Kind != index.Full && !has(f, there, i, skip, most) {
			r.Lacks |= 1 << i
		}
	}
	for n := most; n > skip; n -= f.Grid() {
		if usable(f, there, skip, n) {
			r.Tokens = n
			return r
		}
	}
	return r
}

// lengths is the naive answer of all.
func lengths(f index.Family, there chunks, skip, most, limit int) (out []int) {
	for n := most / f.Grid() * f.Grid(); n > skip && len(out) < limit; n -= f.Grid() {
		if usable(f, there, skip, n) {
			out = append(out, n)
		}
	}
	return out
}

func randomFamily(r *rand.Rand) (f index.Family) {
	steps := [...]int{1, 2, 6, 12}
	for i := range 1 + r.IntN(5) {
		g := index.Group{Kind: index.Kind(r.IntN(4)), Chunk: 1 << r.IntN(3)}
		if r.IntN(4) == 0 {
			g.Chunk = steps[r.IntN(len(steps))]
		}
		if i == 0 {
			g.Kind = index.Full
		}
		if g.Kind == index.Window || g.Kind == index.Local {
			g.Tokens = 1 + r.IntN(1<<r.IntN(10))
		}
		f = append(f, g)
	}
	if f.Check() != nil { // sizes that do not divide
		return randomFamily(r)
	}
	return f
}

// randomChunks are n tokens of which most, or few, are there, with runs.
func randomChunks(r *rand.Rand, f index.Family, n int) chunks {
	c := make(chunks, len(f))
	for i, g := range f {
		c[i] = make([]bool, n/g.Chunk)
		flip, now := 1+r.IntN(1<<r.IntN(9)), r.IntN(2) == 0
		for k := range c[i] {
			if r.IntN(flip) == 0 {
				now = !now
			}
			c[i][k] = now || g.Kind == index.Full
		}
	}
	return c
}

var rounds = flag.Int("hybrid.rounds", 2000, "random families of TestSearchIsTheDefinition")

// The words agree with the definition, in any order in which chunks come and go.
func TestSearchIsTheDefinition(t *testing.T) {
	r, s := rand.New(rand.NewPCG(1, 2)), new(index.Search)
	for range *rounds {
		f := randomFamily(r)
		n := f.Grid() * (1 + r.IntN(300/f.Grid()+1))
		there := randomChunks(r, f, n)
		for range 8 {
			i := r.IntN(len(f))
			k := r.IntN(len(there[i]))
			there[i][k] = !there[i][k] || f[i].Kind == index.Full
			skip, most := 0, n-r.IntN(f.Grid())
			if r.IntN(2) == 0 {
				skip = r.IntN(n)
			}
			want := longest(f, there, skip, most)
			if got := s.Longest(f, skip, most, there); got != want {
				t.Fatalf("%+v, %d to %d of\n%v: %+v; want %+v", f, skip, most, picture(there), got, want)
			}
			limit := 1 + r.IntN(100)
			if got, want := s.Lengths(nil, f, skip, most, limit, there), lengths(f, there, skip, most, limit); !slices.Equal(got, want) {
				t.Fatalf("%+v, %d to %d of\n%v: lengths %d; want %d", f, skip, most, picture(there), got, want)
			}
		}
	}
}

func picture(c chunks) string {
	var b strings.Builder
	for i, g := range c {
		fmt.Fprintf(&b, "%d ", i)
		for _, x := range g {
			b.WriteByte(".#"[map[bool]int{true: 1}[x]])
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// Needs is the definition in chunks.
func TestNeedsIsTheDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 5000 {
		g := randomFamily(r)[0]
		if f := randomFamily(r); len(f) > 1 {
			g = f[1]
		}
		n := g.Chunk * (1 + r.IntN(50))
		skip := r.IntN(n)
		from, to := g.Needs(skip, n)
		if from < skip/g.Chunk || to != n/g.Chunk {
			t.Fatalf("%+v at %d behind %d needs %d to %d", g, n, skip, from, to)
		}
		for k := skip / g.Chunk; k < to; k++ {
			needed := false
			for token := k * g.Chunk; token < (k+1)*g.Chunk; token++ {
				needed = needed || tokensNeeded(g, n, token)
			}
			if needed != (k >= from) {
				t.Fatalf("%+v at %d behind %d needs %d to %d, and chunk %d: %v", g, n, skip, from, to, k, needed)
			}
		}
	}
}

// A search asks for no more than from the answer on, and the windows before.
func TestSearchAsksForLittle(t *testing.T) {
	f := index.Family{{Kind: index.Full, Chunk: 16}, {Kind: index.Window, Tokens: 1024, Chunk: 16}, {Kind: index.State, Chunk: 16}}
	there := make(chunks, 3)
	for i := range there {
		there[i] = make([]bool, 8192)
	}
	for k := 8000 - 64; k < 8000; k++ {
		there[1][k] = true
	}
	there[2][7999] = true
	asked := &counted{chunks: there}
	if r := new(index.Search).Longest(f, 0, 16*8192, asked); r.Tokens != 16*8000 || r.Lacks != 0b110 {
		t.Fatalf("%+v; want 8000 chunks, cut by both", r)
	}
	if asked.n > 3*(192+2*64) {
		t.Errorf("%d chunks were asked for", asked.n)
	}
}

// However many lengths are wanted, each chunk is asked for once.
func TestLengthsAskOnce(t *testing.T) {
	const n = 8192
	f := index.Family{{Kind: index.Full, Chunk: 16}, {Kind: index.Window, Tokens: 1024, Chunk: 16}, {Kind: index.Local, Tokens: 8192, Chunk: 16}, {Kind: index.State, Chunk: 16}}
	there := make(chunks, len(f))
	for i := range there {
		there[i] = slices.Repeat([]bool{true}, n)
	}
	asked := &counted{chunks: there}
	if got := new(index.Search).Lengths(nil, f, 0, 16*n, n/2, asked); len(got) != n/2 || got[n/2-1] != 16*(n/2+1) {
		t.Fatalf("%d lengths", len(got))
	}
	if asked.n > 3*n {
		t.Errorf("%d chunks were asked for, there are %d", asked.n, 3*n)
	}
}

type counted struct {
	chunks
	n int
}

func (c *counted) There(group, from, to int) uint64 {
	c.n += to - from
	return c.chunks.There(group, from, to)
}

// Each wrong family has an error of its own.
func TestCheck(t *testing.T) {
	full := index.Group{Chunk: 16}
	for name, tc := range map[string]struct {
		f    index.Family
		want string
	}{
		"nothing":       {nil, "none of the groups is full"},
		"no full one":   {index.Family{{Kind: index.Window, Tokens: 8, Chunk: 16}}, "none of the groups is full"},
		"window of 0":   {index.Family{full, {Kind: index.Window, Chunk: 16}}, "group 1: a window of 0 tokens"},
		"local of 0":    {index.Family{full, {Kind: index.Local, Chunk: 16}}, "group 1: a local of 0 tokens"},
		"state of 5":    {index.Family{full, {Kind: index.State, Tokens: 5, Chunk: 16}}, "kind state with 5 tokens"},
		"full of 5":     {index.Family{{Tokens: 5, Chunk: 16}}, "kind full with 5 tokens"},
		"no such kind":  {index.Family{full, {Kind: 9, Chunk: 16}}, "kind 9 is unknown"},
		"no chunk":      {index.Family{full, {Kind: index.State}}, "a chunk of 0 tokens"},
		"16 and 24":     {index.Family{full, {Kind: index.State, Chunk: 24}}, "one must divide the other"},
		"4, 6 and 12":   {index.Family{{Chunk: 12}, {Kind: index.State, Chunk: 4}, {Kind: index.State, Chunk: 6}}, "one must divide the other"},
		"all is well":   {index.Family{full, {Kind: index.Window, Tokens: 100, Chunk: 64}, {Kind: index.State, Chunk: 4}}, ""},
		"full ones too": {index.Family{full, {Chunk: 8}}, ""},
	} {
		err := tc.f.Check()
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v; want %q", name, err, tc.want)
		}
	}
}

func BenchmarkSearch(b *testing.B) {
	f := index.Family{{Chunk: 16}, {Kind: index.Window, Tokens: 1024, Chunk: 16}, {Kind: index.Local, Tokens: 8192, Chunk: 16}, {Kind: index.State, Chunk: 16}}
	for name, state := range map[string]int{"late": 8100, "none": -1} {
		there := make(words, 4)
		for i := range there {
			there[i] = make([]uint64, 128)
			for k := range there[i] {
				there[i][k] = ^uint64(0)
			}
		}
		clear(there[3])
		if state >= 0 {
			there[3][state/64] |= 1 << (state % 64)
		}
		b.Run(name, func(b *testing.B) {
			s := new(index.Search)
			b.ReportAllocs()
			for b.Loop() {
				s.Longest(f, 0, 16*8192, there)
			}
		})
	}
}

type words [][]uint64

func (w words) There(group, from, _ int) uint64 { return w[group][from/64] }

func (w words) May(int, int) uint64 { return ^uint64(0) }
