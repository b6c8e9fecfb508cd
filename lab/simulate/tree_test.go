package simulate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/policy/policytest"
)

// TestTreeIsWholePrefixes: at every moment each resident block has its parent,
// is no more than the capacity, and is what the reference model keeps.
func TestTreeIsWholePrefixes(t *testing.T) {
	traces := []*Trace{readTrace(t, separating)}
	for seed := range *seeds {
		traces = append(traces, randomTrace(t, seed))
	}
	for _, name := range policy.Names() {
		for _, capacity := range []int{1, 3, 7, 20, 60} { // requests of up to 12 blocks
			for i, trace := range traces {
				p, err := newPlayer(trace, name, capacity, &Options{Tree: true})
				if err != nil {
					t.Fatal(err)
				}
				fast := p.(*tree)
				slow := newTree(&store{
					policy: policytest.Model(name, int64(capacity)), capacity: capacity, resident: make([]bool, trace.Distinct()),
					parents: trace.parents,
				})
				at := 0
				for n, req := range trace.requests {
					prefix, _ := fast.request(at, trace.blocks[at:req.end])
					want, _ := slow.request(at, trace.blocks[at:req.end])
					at = req.end
					if prefix != want {
						t.Fatalf("%s at %d, trace %d, request %d: a prefix of %d, the model has %d", name, capacity, i, n, prefix, want)
					}
					fast.check(t, name)
				}
			}
		}
	}
}

func (t *tree) check(tb testing.TB, name string) {
	tb.Helper()
	n := 0
	for b, resident := range t.resident {
		if !resident {
			continue
		}
		n++
		if up := t.parents[b]; up != 0 && !t.resident[up-1] {
			tb.Fatalf("%s: block %d is resident without its parent", name, b)
		}
	}
	if n != t.len() || n > t.capacity {
		tb.Fatalf("%s: %d blocks are resident, %d are counted, %d may be", name, n, t.len(), t.capacity)
	}
}

// randomTrace branches at random.
func randomTrace(t testing.TB, seed uint64) *Trace {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 0))
	var text strings.Builder
	chains := [][]string{{"0"}}
	for next := 1; next < 300; next++ {
		c := chains[r.IntN(len(chains))]
		if len(c) < 12 {
			c = append(slices.Clone(c[:1+r.IntN(len(c))]), fmt.Sprint(next))
		}
		chains = append(chains, c)
		fmt.Fprintf(&text, `{"timestamp": %d, "input_length": %d, "output_length": 1, "hash_ids": [%s]}`+"\n", next, 512*len(c), strings.Join(c, ","))
	}
	trace, err := Read(strings.NewReader(text.String()), "random", Reading{BlockTokens: 512, SaveUnfull: true})
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

// TestPublishedTree: LRU that evicts leaves only has been simulated on the
// published trace before, in the way of RadixAttention.
func TestPublishedTree(t *testing.T) {
	trace := conversation(t)
	rows, err := Run(t.Context(), trace, Options{
		Policies: []string{"lru"}, Tree: true, Capacities: []int{1000, 2000, 4096, 5859, 10_000, 20_000, 50_000},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, r := range rows {
		got += fmt.Sprintf("%.4f ", r.OverallHitRate)
	}
	if want := "0.0454 0.0554 0.0896 0.1387 0.2157 0.2935 0.3615 "; got != want {
		t.Errorf("rates %s, want %s", got, want)
	}
}
