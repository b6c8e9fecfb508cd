package index

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// numbers are consecutive hashes, the way an engine might hand them over.
func numbers(from, n int) []Hash {
	chain := make([]Hash, n)
	for i := range chain {
		chain[i] = hash(from + i)
	}
	return chain
}

func mustAdd(tb testing.TB, t *Tree, space Hash, chain []Hash, from int, set Loc) {
	tb.Helper()
	if err := t.Add(space, chain, from, set); err != nil {
		tb.Fatal(err)
	}
}

func mustInsert(tb testing.TB, t *Tree, parent, h Hash, set Loc) {
	tb.Helper()
	if err := t.Insert(Hash{}, parent, h, set); err != nil {
		tb.Fatal(err)
	}
}

// insertAll inserts a chain chunk by chunk in the given order.
func insertAll(tb testing.TB, t *Tree, chain []Hash, order []int) {
	tb.Helper()
	for _, i := range order {
		var parent Hash
		if i > 0 {
			parent = chain[i-1]
		}
		mustInsert(tb, t, parent, chain[i], 1)
	}
}

func upTo(n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	return order
}

func TestEveryCombinationOfLocations(t *testing.T) {
	const nowhere, cpu, disk, remote Loc = 0, 1, 2, 4
	places := []Loc{nowhere, cpu, disk, remote}
	for depth := 1; depth <= 5; depth++ {
		chain := numbers(1, depth)
		for combination := range 1 << (2 * depth) {
			want := make([]Loc, depth)
			for i := range want {
				want[i] = places[combination>>(2*i)&3]
			}
			for _, build := range []func(*Tree){
				func(tr *Tree) { // everything there, then taken away from the leaf up
					mustAdd(t, tr, Hash{}, chain, 0, 8)
					for i := depth - 1; i >= 0; i-- {
						tr.Set(Hash{}, chain[i], want[i], 8)
					}
				},
				func(tr *Tree) { // from the root down
					mustAdd(t, tr, Hash{}, chain, 0, 8)
					for i := range chain {
						tr.Set(Hash{}, chain[i], want[i], 8)
					}
				},
				func(tr *Tree) { // one by one, deepest first
					for i := depth - 1; i >= 0; i-- {
						if want[i] != 0 {
							mustAdd(t, tr, Hash{}, chain[:i+1], i, want[i])
						}
					}
				},
			} {
				tr := NewTree()
				build(tr)
				checkLocations(t, tr, chain, want)
			}
		}
	}
}

// checkLocations wants a lone chain to match and walk as want says, without
// what is nowhere at its end.
func checkLocations(t *testing.T, tr *Tree, chain []Hash, want []Loc) {
	t.Helper()
	for len(want) > 0 && want[len(want)-1] == 0 {
		want = want[:len(want)-1]
	}
	locs := make([]Loc, len(chain))
	if n := tr.Match(Hash{}, chain, 0, locs, nil); !slices.Equal(locs[:n], want) {
		t.Fatalf("match %v, want %v", locs[:n], want)
	}
	var walked []Loc
	tr.Walk(Hash{}, func(h, _ Hash, depth int, loc Loc) bool {
		if h != chain[depth] {
			t.Fatalf("walk has %x at depth %d", h, depth)
		}
		walked = append(walked, loc)
		return true
	})
	if !slices.Equal(walked, want) {
		t.Fatalf("walk %v, want %v", walked, want)
	}
	mustCheck(t, tr)
}

func TestSharedPrefixIsStoredOnce(t *testing.T) {
	const n = 2000
	tr := NewTree()
	shared := numbers(1, n)
	mustAdd(t, tr, Hash{}, shared, 0, 1)
	before := tr.Stats()
	for i := range n {
		mustInsert(t, tr, shared[n-1], hash(2*n+i), 1)
	}
	st := tr.Stats()
	if st.Chunks != 2*n || st.Placeholders != 0 || st.Runs != before.Runs+n {
		t.Errorf("%+v after %+v", st, before)
	}
	locs := make([]Loc, n+1)
	for i := range n {
		if got := tr.Match(Hash{}, append(shared, hash(2*n+i)), 0, locs, nil); got != n+1 {
			t.Fatalf("suffix %d: %d chunks known", i, got)
		}
	}
	mustCheck(t, tr)
}

func TestSpacesShareNothing(t *testing.T) {
	tr := NewTree()
	a, b := Hash{1}, Hash{2}
	chain := numbers(1, 100)
	mustAdd(t, tr, a, chain, 0, 1)
	locs := make([]Loc, 100)
	if n := tr.Match(b, chain, 0, locs, nil); n != 0 {
		t.Errorf("%d chunks known in a space where nothing was added", n)
	}
	mustAdd(t, tr, b, chain[:50], 0, 2)
	for _, h := range chain {
		tr.Set(a, h, 0, 255)
	}
	if n := tr.Match(b, chain, 0, locs, nil); n != 50 || locs[0] != 2 {
		t.Errorf("%d chunks, location %b", n, locs[0])
	}
	if st := tr.Stats(); st.Spaces != 1 || st.Chunks != 50 {
		t.Errorf("%+v", st)
	}
}

// TestCensus: all spaces are told of, in steps of any length, each with how
// many chunks it has; one that is gone, and placeholders, are not counted.
func TestCensus(t *testing.T) {
	tr := NewTree()
	want := map[Hash]int{}
	for i := range 10 {
		space := Hash{byte(i + 1)}
		mustAdd(t, tr, space, numbers(1, 20), i, 1) // the first i are placeholders
		want[space] = 20 - i
	}
	for n := range 20 {
		tr.Set(Hash{7}, numbers(1, 20)[n], 0, 1)
	}
	delete(want, Hash{7})
	for _, limit := range []int{1, 3, 100} {
		got := map[Hash]int{}
		for next, first := 0, true; first || next != 0; first = false {
			next = tr.Census(next, limit, func(space Hash, chunks int) { got[space] = chunks })
		}
		if !maps.Equal(got, want) {
			t.Errorf("in steps of %d: %v, want %v", limit, got, want)
		}
	}
	if next := NewTree().Census(0, 1, func(Hash, int) { t.Error("an empty tree has a space") }); next != 0 {
		t.Errorf("an empty tree goes on with %d", next)
	}
	mustCheck(t, tr)
}

func TestAnyOrderEndsCompressed(t *testing.T) {
	const n = 5000
	random := upTo(n)
	rand.New(rand.NewPCG(7, 7)).Shuffle(n, func(i, j int) { random[i], random[j] = random[j], random[i] })
	reverse := upTo(n)
	slices.Reverse(reverse)
	least := (n + maxRun - 1) / maxRun
	for _, c := range []struct {
		name  string
		order []int
		runs  int
	}{{"forward", upTo(n), least}, {"reverse", reverse, least}, {"random", random, 2 * least}} {
		t.Run(c.name, func(t *testing.T) {
			tr := NewTree()
			chain := numbers(1, n)
			insertAll(t, tr, chain, c.order)
			if st := tr.Stats(); st.Runs > c.runs || st.Chunks != n || st.Placeholders != 0 {
				t.Errorf("%+v, want at most %d runs", st, c.runs)
			}
			if got := tr.Match(Hash{}, chain, 0, make([]Loc, n), nil); got != n {
				t.Errorf("%d chunks known", got)
			}
			mustCheck(t, tr)
		})
	}
}

func TestHolesHeal(t *testing.T) {
	tr := NewTree()
	chain := numbers(1, 3000)
	mustAdd(t, tr, Hash{}, chain, 0, 1)
	if now, known := tr.Set(Hash{}, chain[1500], 0, 1); now != 0 || !known {
		t.Fatalf("set: %b %v", now, known)
	}
	locs := make([]Loc, len(chain))
	if n := tr.Match(Hash{}, chain, 0, locs, nil); n != 3000 || locs[1500] != 0 || locs[1501] != 1 {
		t.Errorf("%d known, %v around the hole", n, locs[1499:1502])
	}
	mustInsert(t, tr, chain[1499], chain[1500], 2)
	if loc, known := tr.Get(Hash{}, chain[1500]); loc != 2 || !known {
		t.Errorf("healed: %b %v", loc, known)
	}
	if st := tr.Stats(); st.Placeholders != 0 || st.Chunks != 3000 {
		t.Errorf("%+v", st)
	}
}

func TestForkIsUndone(t *testing.T) {
	tr := NewTree()
	chain := numbers(1, 1000)
	mustAdd(t, tr, Hash{}, chain, 0, 1)
	for i := range chain {
		h := hash(5000 + i)
		mustInsert(t, tr, chain[i], h, 1)
		tr.Set(Hash{}, h, 0, 1)
		if st := tr.Stats(); st.Runs != 1 {
			t.Fatalf("%d runs after a fork behind chunk %d came and went", st.Runs, i)
		}
	}
	mustCheck(t, tr)
}

func TestInconsistentChangesNothing(t *testing.T) {
	tr := NewTree()
	chain := numbers(1, 20)
	mustAdd(t, tr, Hash{}, chain, 0, 1)
	mustInsert(t, tr, hash(100), hash(101), 1) // detached: 100 > 101 > 102
	mustInsert(t, tr, hash(101), hash(102), 1)
	before := tr.Stats()
	add := func(numbers ...int) error {
		var chain []Hash
		for _, n := range numbers {
			chain = append(chain, hash(n))
		}
		return tr.Add(Hash{}, chain, 0, 2)
	}
	for name, err := range map[string]error{
		"not a first chunk":       add(5),
		"chunk left out":          add(1, 2, 4),
		"twice, known":            add(1, 2, 1),
		"twice, unknown":          add(1, 50, 51, 50),
		"twice, detached":         add(100, 50, 100),
		"detached, not its first": add(1, 101),
		"zero hash":               add(1, 0),
		"own parent":              tr.Insert(Hash{}, hash(60), hash(60), 2),
		"zero":                    tr.Insert(Hash{}, hash(1), Hash{}, 2),
		"other parent":            tr.Insert(Hash{}, hash(7), hash(3), 2),
		"not the root":            tr.Insert(Hash{}, Hash{}, hash(3), 2),
		"below itself":            tr.Insert(Hash{}, hash(102), hash(100), 2),
	} {
		if !errors.Is(err, ErrInconsistent) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if st := tr.Stats(); st.Chunks != before.Chunks || st.Placeholders != before.Placeholders || st.Runs != before.Runs {
		t.Errorf("%+v, before %+v", st, before)
	}
	tr.Walk(Hash{}, func(h, _ Hash, _ int, loc Loc) bool {
		if loc&2 != 0 {
			t.Errorf("%x was marked", h)
		}
		return true
	})
	mustCheck(t, tr)
}

// Chunks without marks that move from a page without into slots of chunks that had some have
// none.
func TestMarksStayBehind(t *testing.T) {
	const n = 1000
	tr := NewTree()
	old, run, behind := numbers(1, n), numbers(2*n, n/2), numbers(3*n, n/2)
	mustAdd(t, tr, Hash{}, old, 0, 1)
	for _, h := range old {
		Mark(tr, Hash{}, h, 3, 0)
	}
	for i := 0; len(tr.slots.pages) == 1; i++ { // the first page is full
		mustAdd(t, tr, Hash{}, numbers((4+i)*n, n), 0, 1)
	}
	mustAdd(t, tr, Hash{}, run, 0, 1)
	mustAdd(t, tr, Hash{}, behind, 0, 1)
	page := func() uint32 { return tr.find(tr.ids[Hash{}], run[0]) >> pageBits }
	if page() != 1 || tr.slots.marks[1] != nil {
		t.Fatalf("the run lies in page %d", page())
	}
	for _, h := range slices.Backward(old) {
		tr.Set(Hash{}, h, 0, 1)
	}
	mustInsert(t, tr, run[n/2-1], hash(2*n+n/2), 1) // what is behind is in its way
	if page() != 0 {
		t.Fatalf("the run has moved to page %d", page())
	}
	for _, h := range run {
		if m := Marks(tr, Hash{}, h); m != 0 {
			t.Fatalf("a chunk has the marks %b of another", m)
		}
	}
	mustCheck(t, tr)
}

func TestLongPlaceholdersGoStepByStep(t *testing.T) {
	const n = 10 * pruneStep
	tr := NewTree()
	chain := numbers(1, n)
	mustAdd(t, tr, Hash{}, chain, n-1, 1)
	if st := tr.Stats(); st.Chunks != 1 || st.Placeholders != n-1 {
		t.Fatalf("%+v", st)
	}
	tr.Set(Hash{}, chain[n-1], 0, 1)
	for left := n - pruneStep; left > 0; left -= pruneStep {
		if st := tr.Stats(); st.Placeholders != left {
			t.Fatalf("%d placeholders, want %d", st.Placeholders, left)
		}
		mustCheck(t, tr)
		mustAdd(t, tr, Hash{7}, numbers(1, 1), 0, 1) // anything
	}
	if st := tr.Stats(); st.Placeholders != 0 || st.Spaces != 1 {
		t.Errorf("%+v", st)
	}
}

// TestMatchAtPageEnd: a chain goes on behind a chunk whose slot is the last of
// all pages, with none behind it.
func TestMatchAtPageEnd(t *testing.T) {
	tree, chain := NewTree(), numbers(1, 5000+1<<14)
	locs := make([]Loc, len(chain))
	for n := 1; n < len(chain); n++ {
		mustAdd(t, tree, Hash{1}, chain[:n], n-1, 1)
		if known := tree.Match(Hash{1}, chain, n, locs, nil); known != n {
			t.Fatalf("behind chunk %d: %d are known", n, known)
		}
	}
}
