package index

import (
	"math/rand/v2"
	"testing"
)

// TestEachStretch: stretches told of in pieces are all chunks that Walk tells of, once, and
// each stands on the one that its parent chunk is in.
func TestEachStretch(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	tree := NewTree()
	tree.maxRun = 8
	for i := range 300 {
		from := 1000 * (1 + r.IntN(5))
		chain := append(numbers(from, 1+r.IntN(20)), numbers(100000+100*i, r.IntN(12))...)
		mustAdd(t, tree, Hash{byte(1 + i%3)}, chain, r.IntN(len(chain)), 1<<r.IntN(3))
	}
	for i := range 20 {
		_ = tree.Insert(Hash{1}, hash(900000+i), hash(910000+i), 4) // detached
	}
	type sum struct{ known, all, detached int }
	var want, got sum
	for s := range 3 {
		tree.Walk(Hash{byte(1 + s)}, func(_, _ Hash, depth int, loc Loc) bool {
			want.all++
			if loc != 0 {
				want.known++
			}
			if depth < 0 {
				want.detached++
			}
			return true
		})
	}
	rounds := 0
	for next := uint32(1); next != 0; rounds++ {
		next = EachStretch(tree, next, 50, func(st *Stretch) {
			got.all += st.Chunks
			got.known += st.Known
			if st.Detached {
				got.detached += st.Chunks
			}
			parent, ok := tree.Parent(st.Space, st.First)
			if above := RunOf(tree, st.Space, parent); above != st.Parent || ok == st.Detached {
				t.Errorf("%+v stands on run %d, %v", st, above, ok)
			}
			if RunOf(tree, st.Space, st.First) != st.Run || st.In[0]+st.In[1]+st.In[2] < st.Known {
				t.Errorf("%+v", st)
			}
		})
	}
	if got != want || rounds < 3 || want.detached != 40 { // their unknown parents are placeholders
		t.Errorf("%+v in %d rounds, want %+v", got, rounds, want)
	}
	if RunOf(tree, Hash{9}, hash(1)) != 0 || RunOf(tree, Hash{1}, hash(5)) != 0 {
		t.Error("what is not known is in a run")
	}
}
