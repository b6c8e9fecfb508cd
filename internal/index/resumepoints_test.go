package index

import (
	"flag"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kvstored/kvstored/key"
)

var operations = flag.Int("resume.ops", 1500, "steps of TestIsTheDefinition")

// naive is the definition: all points, and for each piece all of them.
type naive struct {
	here   map[key.Key]bool
	points []*naivePoint
}

type naivePoint struct {
	ends, needs []key.Key
	lost        bool // a piece has gone since it was declared, or since all were there
}

func (n *naive) pieces(b *naivePoint) []key.Key { return append(slices.Clone(b.ends), b.needs...) }

func (n *naive) complete(b *naivePoint) bool {
	return !slices.ContainsFunc(n.pieces(b), func(k key.Key) bool { return !n.here[k] })
}

func (n *naive) needed(k key.Key) bool {
	return slices.ContainsFunc(n.points, func(b *naivePoint) bool {
		return slices.Contains(n.pieces(b), k) && (n.complete(b) || !b.lost)
	})
}

func (n *naive) change(k key.Key, here bool) {
	was := n.here[k]
	n.here[k] = here
	for _, b := range n.points {
		if slices.Contains(n.pieces(b), k) && was != here {
			b.lost = !n.complete(b) && (b.lost || !here)
		}
	}
}

// After each step each piece is needed as the definition says, and so say the needs that
// were told.
func TestIsTheDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	table, model := NewResumePoints(math.MaxInt), &naive{here: make(map[key.Key]bool)}
	table.maxDead, table.maxWaits, table.batch = 1<<30, 1<<30, 1<<30
	follow := map[key.Key]bool{} // needed, of what is here
	at := func(space, n int) key.Key {
		return key.Key{Space: key.SpaceID{byte(space)}, Hash: key.Hash{byte(n), byte(n >> 8), 1}}
	}
	hear := func(told []Need) {
		for _, n := range told {
			follow[n.Key] = n.Needed
		}
	}
	const chunks = 60
	for i := range *operations {
		switch n := r.IntN(chunks); r.IntN(8) {
		case 0: // a point at chunk n: two full groups, a window and a state
			b := &naivePoint{ends: []key.Key{at(0, n), at(1, n)}, needs: []key.Key{at(3, n)}}
			for k := max(0, n-r.IntN(6)); k <= n; k++ {
				b.needs = append(b.needs, at(2, k))
			}
			told := table.Declare(b.ends, b.needs, func(k key.Key) bool { return model.here[k] })
			if !slices.ContainsFunc(model.points, func(o *naivePoint) bool { return o.ends[0] == b.ends[0] }) {
				model.points = append(model.points, b)
			}
			hear(told)
		default:
			k, here := at(r.IntN(4), n), r.IntN(3) > 0
			model.change(k, here)
			hear(table.Changed(k, here))
		}
		if i%7 != 0 {
			continue
		}
		live := 0
		for _, b := range model.points {
			if model.complete(b) {
				live++
			}
			for _, k := range model.pieces(b) {
				want := model.needed(k)
				if p := table.pieces.At(table.find(k)); (p.needs > 0) != want || p.here != model.here[k] {
					t.Fatalf("step %d: %v is here %v and needed by %d; want %v, %v", i, k, p.here, p.needs, model.here[k], want)
				}
				if model.here[k] && follow[k] != want {
					t.Fatalf("step %d: of %v it was told that it is needed: %v; want %v", i, k, follow[k], want)
				}
			}
		}
		if table.Stats().Live != live {
			t.Fatalf("step %d: %d are live; want %d", i, table.Stats().Live, live)
		}
	}
}

// However many points lose a piece, the table remembers only so many of them, and with
// the last piece its memory is free.
func TestForgets(t *testing.T) {
	table := NewResumePoints(math.MaxInt)
	table.maxDead = 100
	for i := range 10_000 {
		k := func(space int) key.Key {
			return key.Key{Space: key.SpaceID{byte(space)}, Hash: key.Hash{byte(i), byte(i >> 8), 1}}
		}
		table.Declare([]key.Key{k(0)}, []key.Key{k(1), k(2)}, func(key.Key) bool { return true })
		if i%2 == 0 {
			table.Changed(k(1), false)
		}
	}
	if s := table.Stats(); s.Live != 5000 || s.Pieces != 3*5100 {
		t.Fatalf("%+v; want 5000 live and 100 that are not", s)
	}
	for i := range 10_000 {
		k := func(space int) key.Key {
			return key.Key{Space: key.SpaceID{byte(space)}, Hash: key.Hash{byte(i), byte(i >> 8), 1}}
		}
		table.Changed(k(0), false)
	}
	if s := table.Stats(); s.Live != 0 || s.Pieces != 300 || table.links.Used() != 300 {
		t.Fatalf("%+v, %d links; want 100 points that are not live", s, table.links.Used())
	}
}

// Points with many pieces of which nothing is ever stored take no more memory than a
// few of them.
func TestLimitsWhatWaits(t *testing.T) {
	table := NewResumePoints(math.MaxInt)
	table.maxWaits = 1000
	at := func(space, n int) key.Key {
		return key.Key{Space: key.SpaceID{byte(space)}, Hash: key.Hash{byte(n), byte(n >> 8), 1}}
	}
	for i := range 500 {
		needs := make([]key.Key, 99)
		for j := range needs {
			needs[j] = at(1, i+j)
		}
		table.Declare([]key.Key{at(0, i)}, needs, func(key.Key) bool { return false })
		if most := min(i+1, 10); table.points.Used() != most || table.links.Used() != 100*most {
			t.Fatalf("%d points with %d links after %d; want %d", table.points.Used(), table.links.Used(), i+1, most)
		}
	}
	if last := at(0, 499); !table.Has(last) {
		t.Fatal("the last point is not known")
	}
}

// A chunk that very many points have takes no call long, and in the end each knows that it
// is gone; points that would be too many are not counted.
func TestTurns(t *testing.T) {
	table := NewResumePoints(math.MaxInt)
	at := func(space, n int) key.Key {
		return key.Key{Space: key.SpaceID{byte(space)}, Hash: key.Hash{byte(n), byte(n >> 8), 1}}
	}
	always := func(key.Key) bool { return true }
	needed := map[key.Key]bool{}
	hear := func(told []Need) (n int) {
		for _, need := range told {
			needed[need.Key] = need.Needed
		}
		return len(told)
	}
	const pieces = 20 // of each point, but for the one that all have
	for i := range 3 * maxShares {
		needs := []key.Key{at(1, 0)}
		for j := 1; j < pieces; j++ {
			needs = append(needs, at(2, i*pieces+j))
		}
		hear(table.Declare([]key.Key{at(0, i)}, needs, always))
	}
	if s := table.Stats(); s.Live != maxShares || s.Uncounted != 2*maxShares {
		t.Fatalf("%+v; want %d points that share a piece, and twice that uncounted", s, maxShares)
	}
	for n, told := 0, table.Changed(at(1, 0), false); ; n++ {
		if got := hear(told); got > batch+MaxPieces {
			t.Fatalf("one call told of %d pieces", got)
		}
		if len(table.queue) == 0 {
			if n < maxShares*pieces/(batch+pieces)/2 {
				t.Errorf("all were told in %d calls", n)
			}
			break
		}
		told = table.Changed(at(9, 9), true) // of no point
	}
	delete(needed, at(1, 0)) // it is gone, and nothing is told of it
	for k, yes := range needed {
		if yes {
			t.Fatalf("%v is needed still", k)
		}
	}
	if s := table.Stats(); s.Live != 0 {
		t.Fatalf("%+v; want none", s)
	}
	hear(table.Changed(at(1, 0), true))
	for len(table.queue) > 0 {
		hear(table.Changed(at(9, 9), true))
	}
	if s := table.Stats(); s.Live != maxShares || !needed[at(1, 0)] {
		t.Fatalf("%+v; want all %d again", s, maxShares)
	}
}

// No number of points takes more than the room that they have together.
func TestLimitsWhatIsLive(t *testing.T) {
	table := NewResumePoints(math.MaxInt)
	table.maxLinks = 1000
	for i := range 500 {
		end := key.Key{Hash: key.Hash{byte(i), byte(i >> 8), 1}}
		table.Declare([]key.Key{end}, []key.Key{{Space: key.SpaceID{1}, Hash: end.Hash}, {Space: key.SpaceID{2}, Hash: end.Hash}}, func(key.Key) bool { return true })
		if table.links.Used() > 1000 {
			t.Fatalf("%d links", table.links.Used())
		}
	}
	if s := table.Stats(); s.Live != 333 || s.Uncounted != 167 {
		t.Fatalf("%+v; want 333 of 500", s)
	}
}
