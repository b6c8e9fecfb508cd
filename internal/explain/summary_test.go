package explain

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvstored/kvstored/key"
)

func run(number, parent uint32, length int) Run {
	return Run{Number: number, Parent: parent, First: key.Hash{byte(number)}, Length: length, Use: Use{Chunks: length, In: [Places]int{length, 1, 0}}}
}

func names(t *Summary, list []int) (out []byte) {
	for _, i := range list {
		out = append(out, t.Nodes[i].Hash[0])
	}
	return out
}

// TestBuild: totals include what stands on a prefix, a stretch with one child is one
// prefix with it, and wrong stretches are left out or stand at the top.
func TestBuild(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	runs := []Run{
		run(4, 2, 10), run(5, 2, 20), // in any order
		run(1, 0, 1000), run(2, 1, 24), run(3, 0, 7),
		run(4, 3, 99),              // told of twice: as it was the first time
		run(6, 77, 5),              // its parent was not told of
		run(8, 9, 1), run(9, 8, 1), // in a circle
		run(10, 10, 1), // its own parent
	}
	runs[0].Heat, runs[0].Last = 2, now
	runs[1].Heat, runs[1].Last = 3, now.Add(-time.Minute)
	tree := NewSummary(now, []Space{{ID: key.SpaceID{1}, Bytes: [Places]int64{10660, 0, 0}}}, runs)
	if got := names(tree, tree.List(ByBytes, func(int) bool { return true })); !slices.Equal(got, []byte{1, 5, 4, 3, 6}) {
		t.Fatalf("prefixes %v", got)
	}
	at, err := tree.Find("", "01")
	if err != nil {
		t.Fatal(err)
	}
	n := &tree.Nodes[at]
	if n.Length != 1024 || n.Branches != 2 || n.All.Chunks != 1054 || n.All.Heat != 5 || !n.All.Last.Equal(now) || n.All.In != [Places]int{1054, 4, 0} || n.Detached {
		t.Errorf("%+v", n)
	}
	if size := tree.Size(n); size != 10540 { // 10 bytes a chunk
		t.Errorf("%d bytes", size)
	}
	below := tree.List(byHeat, func(i int) bool { return tree.Nodes[i].Parent == at })
	if !slices.Equal(names(tree, below), []byte{5, 4}) || tree.Nodes[below[0]].Depth != 1024 {
		t.Errorf("behind it: %v", names(tree, below))
	}
	if i, err := tree.Find("", "06"); err != nil || !tree.Nodes[i].Detached {
		t.Errorf("without its parent: %v", err)
	}
	if got := names(tree, tree.Largest(2, func(int) bool { return true })); !slices.Equal(got, []byte{1, 5}) {
		t.Errorf("the largest: %v", got)
	}
	if got := names(tree, tree.Largest(9, func(i int) bool { return tree.Within(i, at) })); len(got) != 3 || got[0] != 1 {
		t.Errorf("within the first: %v", got)
	}
	if _, err := tree.Find("", "0"); err == nil || !strings.Contains(err.Error(), "more than one") {
		t.Errorf("five begin so: %v", err)
	}
	if _, err := tree.Find(strings.Repeat("0", 32), "01"); !errors.Is(err, ErrUnknown) {
		t.Errorf("in another space: %v", err)
	}
}

// TestOrders: a prefix whose use is forgotten counts as older than all others.
func TestOrders(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	runs := []Run{run(1, 0, 1), run(2, 0, 2), run(3, 0, 3)}
	runs[0].Last, runs[2].Last = now, now.Add(-time.Hour)
	runs[0].Heat = 1 // all begin prompts
	tree := NewSummary(now, []Space{{}}, runs)
	for by, want := range map[Order][]byte{byAge: {2, 3, 1}, byHeat: {1, 2, 3}, byDepth: {1, 2, 3}} {
		got := names(tree, tree.List(by, func(int) bool { return true }))
		if !slices.Equal(got, want) {
			t.Errorf("by %s: %v", by, got)
		}
	}
}
