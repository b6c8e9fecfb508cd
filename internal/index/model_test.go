package index

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
)

var ops = flag.Int("ops", 200_000, "operations of the differential test")

// model is the tree as a map per space, in the plainest way.
type model map[Hash]map[Hash]*node

type node struct {
	parent Hash
	linked bool // parent is known
	loc    Loc
	marks  uint8
	kids   int
}

func (m model) get(space, h Hash) *node { return m[space][h] }

func (m model) make(space, h Hash) *node {
	if m[space] == nil {
		m[space] = map[Hash]*node{}
	}
	n := m[space][h]
	if n == nil {
		n = &node{}
		m[space][h] = n
	}
	return n
}

func (m model) link(space, parent, h Hash) {
	n := m.make(space, h)
	if n.linked {
		return
	}
	n.linked, n.parent = true, parent
	if parent != (Hash{}) {
		m.make(space, parent).kids++
	}
}

func (m model) prune(space, h Hash) {
	for n := m.get(space, h); n != nil && n.loc == 0 && n.kids == 0; n = m.get(space, h) {
		delete(m[space], h)
		if !n.linked || n.parent == (Hash{}) {
			break
		}
		h = n.parent
		m.get(space, h).kids--
	}
	if len(m[space]) == 0 {
		delete(m, space)
	}
}

// matchInPieces is Match, at most so many chunks at a time.
func matchInPieces(t *Tree, space Hash, chain []Hash, locs []Loc, piece int) (known int) {
	for to := 0; known == to && to < len(chain); {
		to = min(to+piece, len(chain))
		known = t.Match(space, chain[:to], known, locs, nil)
	}
	return known
}

func (m model) match(space Hash, chain []Hash) (locs []Loc) {
	var prev Hash
	for _, h := range chain {
		n := m.get(space, h)
		if n == nil || !n.linked || n.parent != prev {
			break
		}
		locs = append(locs, n.loc)
		prev = h
	}
	return locs
}

func (m model) add(space Hash, chain []Hash, from int, set Loc) bool {
	seen := map[Hash]bool{{}: true}
	var prev Hash
	for _, h := range chain {
		if n := m.get(space, h); seen[h] || n != nil && n.linked && n.parent != prev {
			return false
		}
		seen[h] = true
		prev = h
	}
	prev = Hash{}
	for i, h := range chain {
		m.link(space, prev, h)
		if i >= from {
			m.get(space, h).loc |= set
		}
		prev = h
	}
	m.prune(space, prev)
	return true
}

// claim is insert where the first parent stays.
func (m model) claim(space, parent, h Hash, set Loc) bool {
	if m.insert(space, parent, h, set) {
		return true
	}
	if n := m.get(space, h); n != nil {
		n.loc |= set
		return false
	}
	m.insert(space, Hash{}, h, set)
	return false
}

func (m model) insert(space, parent, h Hash, set Loc) bool {
	if h == (Hash{}) || h == parent {
		return false
	}
	if n := m.get(space, h); n != nil {
		if n.linked && n.parent != parent {
			return false
		}
		for up := parent; up != (Hash{}) && !n.linked; {
			if up == h {
				return false
			}
			above := m.get(space, up)
			if above == nil {
				break
			}
			up = above.parent
		}
	}
	m.link(space, parent, h)
	m.get(space, h).loc |= set
	m.prune(space, h)
	return true
}

func (m model) set(space, h Hash, set, clear Loc) (Loc, bool) {
	n := m.get(space, h)
	if n == nil {
		return 0, false
	}
	n.loc = n.loc&^clear | set
	m.prune(space, h)
	return n.loc, true
}

// compare walks the tree and wants the model's nodes exactly once each.
func (m model) compare(t *Tree) error {
	if err := t.checkAll(); err != nil {
		return err
	}
	spaces, nodes, holes := 0, 0, 0
	for space := range t.Spaces {
		spaces++
		seen := map[Hash]int{}
		var err error
		t.Walk(space, func(h, parent Hash, depth int, loc Loc) bool {
			n := m.get(space, h)
			want := 0
			if parent != (Hash{}) {
				if at, ok := seen[parent]; !ok {
					err = fmt.Errorf("%x comes before its parent", h)
				} else if want = at + 1; at < 0 {
					want = -1
				}
			} else if n != nil && !n.linked {
				want = -1
			}
			if _, twice := seen[h]; twice || n == nil || n.parent != parent || n.loc != loc || depth != want {
				err = fmt.Errorf("walk has %x below %x, depth %d, location %b; want depth %d, %+v", h, parent, depth, loc, want, n)
			}
			seen[h] = depth
			nodes++
			if loc == 0 {
				holes++
			}
			return err == nil
		})
		if err != nil {
			return err
		}
		if len(seen) != len(m[space]) {
			return fmt.Errorf("walk saw %d chunks of %d", len(seen), len(m[space]))
		}
	}
	st := t.Stats()
	if spaces != len(m) || st.Spaces != spaces || st.Placeholders != holes || st.Chunks != nodes-holes {
		return fmt.Errorf("%d spaces, %d chunks, %d of them placeholders; %d spaces wanted, stats %+v", spaces, nodes, holes, len(m), st)
	}
	return nil
}

// world is what random operations are about: a forest that says who follows
// whom, most chunks being the only one behind theirs.
type world struct {
	parent []int // by chunk number; 0 is the root
	spaces []Hash
	honest bool // nobody links a chunk where it does not belong
}

func newWorld(rng *rand.Rand, chunks int, branch float64) *world {
	w := &world{parent: []int{0}, spaces: []Hash{{}, {1}, {15: 9}}}
	for n := 1; n <= chunks; n++ {
		p := n - 1
		if rng.Float64() < branch {
			p = rng.IntN(n)
		}
		w.parent = append(w.parent, p)
	}
	return w
}

// hash is like an engine's plain sequence number.
func hash(n int) (h Hash) {
	binary.LittleEndian.PutUint64(h[:], uint64(n))
	return h
}

func (w *world) chain(n int) (chain []Hash) {
	for ; n != 0; n = w.parent[n] {
		chain = append(chain, hash(n))
	}
	for i, j := 0, len(chain)-1; i < j; i, j = i+1, j-1 {
		chain[i], chain[j] = chain[j], chain[i]
	}
	return chain
}

// source is where an operation's random numbers come from.
type source interface{ IntN(n int) int }

// operate does one random operation on both and compares the answers.
func (w *world) operate(t *Tree, m model, src source) error {
	space := w.spaces[src.IntN(len(w.spaces))]
	n := 1 + src.IntN(len(w.parent)-1)
	set, clear := Loc(src.IntN(8)), Loc(src.IntN(8))
	switch op := src.IntN(100); {
	case op < 12:
		chain := w.chain(n)
		from := src.IntN(len(chain) + 2)
		return same(t.Add(space, chain, from, set), m.add(space, chain, from, set))
	case op < 14 && !w.honest: // a chain that is wrong somewhere, mostly
		chain := w.chain(n)
		chain[src.IntN(len(chain))] = hash(src.IntN(len(w.parent)))
		return same(t.Add(space, chain, 0, set), m.add(space, chain, 0, set))
	case op < 38:
		return same(t.Insert(space, hash(w.parent[n]), hash(n), set), m.insert(space, hash(w.parent[n]), hash(n), set))
	case op < 40 && !w.honest:
		p := src.IntN(len(w.parent))
		if above := w.chain(p); len(above) > 0 && src.IntN(2) == 0 { // below itself, if nobody knows better
			h := above[src.IntN(len(above))]
			return same(t.Insert(space, hash(p), h, set), m.insert(space, hash(p), h, set))
		}
		if src.IntN(2) == 0 {
			return same(t.Insert(space, hash(p), hash(n), set), m.insert(space, hash(p), hash(n), set))
		}
		if got, want := t.Claim(space, hash(p), hash(n), set), m.claim(space, hash(p), hash(n), set); got != want {
			return fmt.Errorf("claim %d below %d: %v, want %v", n, p, got, want)
		}
	case op < 50:
		n2 := m.get(space, hash(n))
		if Mark(t, space, hash(n), set, clear) != (n2 != nil) {
			return fmt.Errorf("mark %d, of which is known: %v", n, n2 != nil)
		}
		if n2 != nil {
			n2.marks = n2.marks&^clear | set
		}
	case op < 80:
		now, known := t.Set(space, hash(n), set, clear)
		if wantNow, want := m.set(space, hash(n), set, clear); now != wantNow || known != want {
			return fmt.Errorf("set %d: %b %v, want %b %v", n, now, known, wantNow, want)
		}
	case op < 86:
		loc, known := t.Get(space, hash(n))
		p, linked := t.Parent(space, hash(n))
		want := m.get(space, hash(n))
		if known != (want != nil) || known && (loc != want.loc || p != want.parent || linked != want.linked || Marks(t, space, hash(n)) != want.marks) {
			return fmt.Errorf("get %d: %b %v, parent %x %v; want %+v", n, loc, known, p, linked, want)
		}
	case op < 99:
		chain := w.chain(n)
		locs := make([]Loc, len(chain))
		known, want := t.Match(space, chain, 0, locs, nil), m.match(space, chain)
		if string(want) != string(locs[:known]) {
			return fmt.Errorf("match %d: %v, want %v", n, locs[:known], want)
		}
		marks := make([]uint8, len(chain))
		for i := range t.Match(space, chain, 0, locs, marks) {
			if want := m.get(space, chain[i]).marks; marks[i] != want {
				return fmt.Errorf("chunk %d of %d has the marks %b, want %b", i, n, marks[i], want)
			}
		}
		locs = make([]Loc, len(chain))
		known = matchInPieces(t, space, chain, locs, 1+src.IntN(8))
		if string(want) != string(locs[:known]) {
			return fmt.Errorf("match %d in pieces: %v, want %v", n, locs[:known], want)
		}
	}
	return nil
}

func same(err error, ok bool) error {
	if (err == nil) != ok || err != nil && !errors.Is(err, ErrInconsistent) {
		return fmt.Errorf("got error %v, want success: %v", err, ok)
	}
	return nil
}

func TestAgainstModel(t *testing.T) {
	for _, c := range []struct {
		maxRun, chunks int
		branch         float64
		honest         bool
		share          int // of the operations, in percent; long chains cost the model more
	}{{4, 200, .1, false, 55}, {16, 60, .3, true, 35}, {64, 1500, .03, false, 7}, {maxRun, 4000, .02, true, 3}} {
		t.Run(fmt.Sprint(c.maxRun, c.chunks), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(1, uint64(c.chunks)))
			tree, m, w := NewTree(), model{}, newWorld(rng, c.chunks, c.branch)
			tree.maxRun, w.honest = c.maxRun, c.honest
			n := *ops * c.share / 100
			for i := range n {
				err := w.operate(tree, m, rng)
				if err == nil && i%(n/100+1) == 0 {
					err = m.compare(tree)
				}
				if err != nil {
					t.Fatalf("operation %d: %v", i, err)
				}
			}
			if err := m.compare(tree); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// input makes a fuzzer's bytes a source; it is empty when they are used up.
type input struct{ data []byte }

func (in *input) IntN(n int) int {
	if len(in.data) == 0 {
		return 0
	}
	v := int(in.data[0])
	in.data = in.data[1:]
	if n > 256 && len(in.data) > 0 {
		v = v<<8 | int(in.data[0])
		in.data = in.data[1:]
	}
	return v % n
}

func FuzzTree(f *testing.F) {
	f.Add(uint64(1), uint8(4), []byte("add, insert and set"))
	rng := rand.New(rand.NewPCG(3, 3))
	for i := range 8 {
		data := make([]byte, 600)
		for j := range data {
			data[j] = byte(rng.Uint32())
		}
		f.Add(uint64(i), uint8(1+i*i), data)
	}
	f.Fuzz(func(t *testing.T, seed uint64, longest uint8, data []byte) {
		rng := rand.New(rand.NewPCG(seed, 0))
		tree, m, w := NewTree(), model{}, newWorld(rng, 40, .2)
		tree.maxRun, w.honest = 1+int(longest), seed%2 == 0
		tree.seed = [3]uint64{1 << 63, 2 << 60, 3} // the same coverage for the same input
		for in := (&input{data: data}); len(in.data) > 0; {
			if err := w.operate(tree, m, in); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.compare(tree); err != nil {
			t.Fatal(err)
		}
	})
}
