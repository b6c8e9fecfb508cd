package prefetch_test

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/prefetch"
)

// prompt is a chain whose chunks are the words: equal words, equal prefix.
func prompt(space byte, words ...int) prefetch.Prompt {
	c := &key.Chain{Space: key.SpaceID{space}}
	h := key.Hash{1}
	for _, w := range words {
		x := binary.LittleEndian.Uint64(h[:]) ^ uint64(w+1)
		x *= 0x9e3779b97f4a7c15
		x ^= x >> 29
		binary.LittleEndian.PutUint64(h[:], x)
		h[15]++
		c.Hashes, c.Tokens = append(c.Hashes, h), append(c.Tokens, 16)
	}
	return prefetch.Prompt{Chain: c}
}

func randomPrompts(r *rand.Rand, n int) []prefetch.Prompt {
	ps := make([]prefetch.Prompt, n)
	for i := range ps {
		words := make([]int, r.IntN(6))
		for k := range words {
			words[k] = r.IntN(2)
		}
		ps[i] = prompt(byte(r.IntN(2)), words...)
		ps[i].Cached = r.IntN(len(words) + 1)
		if r.IntN(3) == 0 {
			ps[i].Overtaken = r.IntN(6)
		}
	}
	return ps
}

// adjacent is how many chunks neighbours share, compared one by one.
func adjacent(ps []prefetch.Prompt, order []int) (sum int) {
	for i := 1; i < len(order); i++ {
		a, b := ps[order[i-1]].Chain, ps[order[i]].Chain
		for k := 0; a.Space == b.Space && k < min(a.Len(), b.Len()) && a.Hashes[k] == b.Hashes[k]; k++ {
			sum++
		}
	}
	return sum
}

// most is the most that neighbours share in any order.
func most(ps []prefetch.Prompt, order []int, left int) (best int) {
	if left == len(order) {
		return adjacent(ps, order)
	}
	for i := left; i < len(order); i++ {
		order[left], order[i] = order[i], order[left]
		best = max(best, most(ps, order, left+1))
		order[left], order[i] = order[i], order[left]
	}
	return best
}

func all(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

func isPermutation(order []int, n int) bool {
	return slices.Equal(slices.Sorted(slices.Values(order)), all(n))
}

// No order of all there are makes neighbours share more.
func TestOrderIsBest(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		n := r.IntN(8)
		ps := randomPrompts(r, n)
		order := prefetch.Order(ps, 1<<30)
		if !isPermutation(order, n) {
			t.Fatalf("%d prompts in order %d", n, order)
		}
		if got, want := adjacent(ps, order), most(ps, all(n), 0); got != want {
			t.Fatalf("neighbours share %d chunks in order %d; %d are possible", got, order, want)
		}
	}
}

// Random prompts are overtaken no more often than the bound says.
func TestOrderAges(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 3000 {
		n, bound := r.IntN(40), r.IntN(8)
		ps := randomPrompts(r, n)
		order := prefetch.Order(ps, bound)
		if !isPermutation(order, n) {
			t.Fatalf("%d prompts in order %d", n, order)
		}
		for i, p := range order {
			overtaken := 0
			for _, q := range order[:i] {
				if q > p {
					overtaken++
				}
			}
			if overtaken > max(0, bound-ps[p].Overtaken) {
				t.Fatalf("prompt %d, overtaken %d times before, is overtaken %d times in %d; the bound is %d", p, ps[p].Overtaken, overtaken, order, bound)
			}
		}
		if bound == 0 && !slices.IsSorted(order) {
			t.Fatalf("bound 0 gives %d", order)
		}
	}
}

// A client that runs the first prompt of each order and asks again with the new
// ones starves none: a prompt that shares nothing waits for at most bound + 1
// others.
func TestOrderStarvesNobody(t *testing.T) {
	const bound = 10
	queue := []prefetch.Prompt{prompt(0, 1, 2, 3), prompt(0, 9, 9), prompt(0, 1, 2, 4)}
	lonely := queue[1].Chain
	for round := 0; ; round++ {
		if round > bound+1 { // only one came before it
			t.Fatal("the prompt that shares nothing still waits")
		}
		first := prefetch.Order(queue, bound)[0]
		if queue[first].Chain == lonely {
			return
		}
		for i := range queue[:first] {
			queue[i].Overtaken++
		}
		queue = append(slices.Delete(queue, first, first+1), prompt(0, 1, 2, 5+round))
	}
}

func TestOrderOfSubtrees(t *testing.T) {
	cached := prompt(0, 7, 7)
	cached.Cached = 2
	ps := []prefetch.Prompt{
		prompt(0, 1),             // shares nothing
		prompt(0, 2, 2, 2, 1),    // three chunks with 3
		cached,                   // two are there
		prompt(0, 2, 2, 2, 2, 2), //
		prompt(1, 2, 2, 2, 1),    // another space: nothing
		prompt(0),                // no chunk
	}
	if got, want := prefetch.Order(ps, 100), []int{1, 3, 2, 0, 4, 5}; !slices.Equal(got, want) {
		t.Errorf("order %d; want %d", got, want)
	}
	if got := prefetch.Order(nil, 0); len(got) != 0 {
		t.Errorf("of nothing: %d", got)
	}
}

// A prompt that had to go first takes its own with it: the next one is the prompt
// that it shares most with.
func TestOrderGoesOnFromTheAged(t *testing.T) {
	aged := prompt(0, 5, 5, 1)
	aged.Overtaken = 4
	ps := []prefetch.Prompt{aged, prompt(0, 1, 1, 1, 1), prompt(0, 1, 1, 1, 2), prompt(0, 5, 5, 2)}
	if got, want := prefetch.Order(ps, 4), []int{0, 3, 1, 2}; !slices.Equal(got, want) {
		t.Errorf("order %d; want %d", got, want)
	}
}

// FuzzOrder: hashes that do not chain give a worse order, never a wrong one.
func FuzzOrder(f *testing.F) {
	f.Add([]byte("\x03abc\x02ab\x00\x05zzzzz"), 3)
	f.Fuzz(func(t *testing.T, raw []byte, bound int) {
		var ps []prefetch.Prompt
		for len(raw) > 0 && len(ps) < 200 {
			n := min(int(raw[0]), len(raw)-1)
			c := &key.Chain{}
			for _, b := range raw[1 : 1+n] {
				c.Hashes, c.Tokens = append(c.Hashes, key.Hash{b}), append(c.Tokens, 1)
			}
			ps, raw = append(ps, prefetch.Prompt{Chain: c, Cached: n / 2, Overtaken: bound / 2}), raw[1+n:]
		}
		if order := prefetch.Order(ps, bound); !isPermutation(order, len(ps)) {
			t.Errorf("%d prompts in order %d", len(ps), order)
		}
	})
}
