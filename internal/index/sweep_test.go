package index

import (
	"math/rand/v2"
	"testing"
)

// TestSweepAll: a tree that changes while it is swept is told of in pieces, each chunk that
// stays once, with its parent, and no chunk twice.
func TestSweepAll(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	tree := NewTree()
	tree.maxRun = 8
	id := func(s, n int) [2]Hash { return [2]Hash{{byte(1 + s)}, hash(n)} }
	parents := make(map[[2]Hash]Hash)
	for s := range 3 {
		for i := range 200 {
			chain := append(numbers(1000*(1+i%5), 1+r.IntN(20)), numbers(100_000+100*i, 1+r.IntN(12))...)
			if tree.Add(Hash{byte(1 + s)}, chain, 0, 1) != nil {
				continue // its beginning is another's middle
			}
			for at := range chain {
				parents[[2]Hash{{byte(1 + s)}, chain[at]}] = parentIn(chain, at)
			}
		}
	}
	stays := make(map[[2]Hash]bool)
	for k := range parents {
		stays[k] = r.IntN(3) > 0
	}
	told := make(map[[2]Hash]bool)
	rounds, deepest := 0, 0
	for next := uint64(0); next != 0 || rounds == 0; rounds++ {
		n := 0
		next = SweepAll(tree, next, func(e *Entry) {
			k := [2]Hash{e.Space, e.Hash}
			if told[k] {
				t.Errorf("%x is told of twice", k)
			}
			if want, known := parents[k]; known && e.Parent != want {
				t.Errorf("%x stands on %x, want %x", k, e.Parent, want)
			}
			told[k] = true
			n++
		})
		deepest = max(deepest, n)
		for k := range parents { // some go
			if !stays[k] && r.IntN(40) == 0 {
				tree.Set(k[0], k[1], 0, 1)
				delete(parents, k)
			}
		}
		for i := range 60 { // others come, so that the table grows
			k := id(i%3, 1_000_000+100*rounds+i)
			_ = tree.Insert(k[0], Hash{}, k[1], 1)
		}
	}
	if rounds < 10 || deepest > 2*sweepPiece {
		t.Errorf("%d pieces, of %d chunks at most", rounds, deepest)
	}
	for k, stay := range stays {
		if stay && !told[k] {
			t.Errorf("%x is left out", k)
		}
	}
	empty := NewTree()
	if next := SweepAll(empty, 0, func(*Entry) { t.Error("an empty tree has something") }); next != 0 {
		t.Errorf("an empty tree goes on at %d", next)
	}
}

func parentIn(chain []Hash, at int) Hash {
	if at == 0 {
		return Hash{}
	}
	return chain[at-1]
}
