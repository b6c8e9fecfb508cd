package index

import (
	"flag"
	"math/rand/v2"
	"slices"
	"testing"
)

var memoryChunks = flag.Int("memory.chunks", 70_000, "chunks of the trees whose bytes are counted")

// manyChains are chains of 64 to 256 chunks, the shape of real prompts at
// 256 tokens a chunk.
func manyChains(chunks int) (all [][]Hash) {
	rng := rand.New(rand.NewPCG(8, 8))
	for n := 0; n < chunks; {
		chain := numbers(1+n, 64+rng.IntN(193))
		all = append(all, chain)
		n += len(chain)
	}
	return all
}

func TestBytesPerChunk(t *testing.T) {
	chains := manyChains(*memoryChunks)
	for _, c := range []struct {
		name  string
		most  float64
		build func(*Tree)
	}{
		{"whole", 34, func(tr *Tree) {
			for _, chain := range chains {
				mustAdd(t, tr, Hash{}, chain, 0, 1)
			}
		}},
		{"growing side by side", 38, func(tr *Tree) {
			for i := range 256 {
				for _, chain := range chains {
					if i < len(chain) {
						insertAll(t, tr, chain, []int{i})
					}
				}
			}
		}},
		// Headers of the short runs there were on the way are not given back.
		{"random order", 46, func(tr *Tree) {
			rng := rand.New(rand.NewPCG(9, 9))
			type at struct{ chain, i int }
			var order []at
			for c, chain := range chains {
				for i := range chain {
					order = append(order, at{c, i})
				}
			}
			rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
			for _, o := range order {
				insertAll(t, tr, chains[o.chain], []int{o.i})
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := NewTree()
			c.build(tr)
			st := tr.Stats()
			perChunk := float64(st.Bytes-repackFloor/pageSlots*pageBytes) / float64(st.Chunks) // but for the fixed floor
			t.Logf("%.1f bytes per chunk, %.0f chunks per run", perChunk, float64(st.Chunks)/float64(st.Runs))
			if perChunk > c.most {
				t.Errorf("%.1f bytes per chunk: %+v", perChunk, st)
			}
			if st.Runs != len(chains) {
				t.Errorf("%d runs for %d chains", st.Runs, len(chains))
			}
		})
	}
}

// Memory is used again: churn through many sizes of chains does not grow it,
// and an emptied tree gives its slots back.
func TestMemoryIsUsedAgain(t *testing.T) {
	rng := rand.New(rand.NewPCG(10, 10))
	tr := NewTree()
	var resident [][]Hash
	next, total := 1, 0
	var peak int64
	for round := range 2500 {
		chain := numbers(next, 1+rng.IntN(10+round/10))
		next += len(chain)
		mustAdd(t, tr, Hash{}, chain, 0, 1)
		resident = append(resident, chain)
		total += len(chain)
		for total > 100_000 {
			i := rng.IntN(len(resident))
			victim := resident[i]
			resident[i] = resident[len(resident)-1]
			resident = resident[:len(resident)-1]
			for j := len(victim) - 1; j >= 0; j-- {
				tr.Set(Hash{}, victim[j], 0, 255)
			}
			total -= len(victim)
		}
		peak = max(peak, tr.slots.bytes())
	}
	mustCheck(t, tr)
	if perChunk := float64(peak) / 100_000; perChunk > 36 { // 25 without any waste
		t.Errorf("slots took up to %.1f bytes per chunk", perChunk)
	}
	for _, chain := range resident {
		for _, h := range slices.Backward(chain) {
			tr.Set(Hash{}, h, 0, 255)
		}
	}
	mustCheck(t, tr)
	if st := tr.Stats(); st.Chunks+st.Placeholders+st.Runs+st.Spaces != 0 || tr.slots.bytes() > 3*pageBytes {
		t.Errorf("%+v, %d bytes of slots", st, tr.slots.bytes())
	}
}

func TestMatchDoesNotAllocate(t *testing.T) {
	tr := NewTree()
	chain := numbers(1, 3000)
	mustAdd(t, tr, Hash{}, chain, 0, 1)
	mustInsert(t, tr, chain[1234], hash(9999), 1)
	locs := make([]Loc, len(chain))
	if n := testing.AllocsPerRun(100, func() { tr.Match(Hash{}, chain, 0, locs, nil) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Three sparse groups of a hybrid model, each with a chunk in sixty, take 4 bytes for each
// chunk of the full one: the marks of that, and their own chunks, which stand alone.
func TestBytesOfSparseGroups(t *testing.T) {
	bytes := func(groups int) float64 {
		tr := NewTree()
		for _, chain := range manyChains(*memoryChunks) {
			mustAdd(t, tr, Hash{}, chain, 0, 1)
			for i := 59; i < len(chain); i += 60 {
				for g := range groups {
					if err := tr.Insert(Hash{15: byte(g + 1)}, Hash{}, chain[i], 1); err != nil {
						t.Fatal(err)
					}
					Mark(tr, Hash{}, chain[i], 1<<g, 0)
				}
			}
		}
		return float64(tr.Stats().Bytes) / float64(*memoryChunks)
	}
	flat, groups := bytes(0), bytes(3)
	t.Logf("%.1f bytes a chunk, with groups %.1f", flat, groups)
	if groups > flat+4 {
		t.Errorf("%.1f bytes a chunk, %.1f with three groups", flat, groups)
	}
}
