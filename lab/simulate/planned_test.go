package simulate

import (
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kvstored/kvstored/lab/replay"
	"github.com/kvstored/kvstored/policy"
)

// TestPublishedTenure: the published trace has been simulated with tenure before.
// Details of no consequence, such as the order among equals, move these rates
// by a thousandth or so; above what the other policies reach they must stay.
func TestPublishedTenure(t *testing.T) {
	trace := conversation(t)
	o := Options{
		Policies:   append(policy.Names(), "tenure"),
		Capacities: []int{1000, 2000, 4096, 5859, 10_000, 20_000, 50_000},
	}
	want := []float64{.0864, .1190, .1694, .1956, .2426, .3081, .3630}
	rows, err := Run(t.Context(), trace, o)
	if err != nil {
		t.Fatal(err)
	}
	tenure := rows[len(rows)-len(want):]
	for i, r := range tenure {
		if math.Abs(r.OverallHitRate-want[i]) > .002 {
			t.Errorf("%d blocks: %.4f, want %.4f", r.CapacityBlocks, r.OverallHitRate, want[i])
		}
	}
	for i, r := range rows[:len(rows)-len(want)] {
		if best := tenure[i%len(want)]; r.OverallHitRate >= best.OverallHitRate {
			t.Errorf("%d blocks: %s has %.4f, tenure %.4f", r.CapacityBlocks, r.Policy, r.OverallHitRate, best.OverallHitRate)
		}
	}
}

// TestPublishedThenAnew: when all sessions end at once, the lengths learned of
// them cost little of what lru hits, and after a while nothing.
func TestPublishedThenAnew(t *testing.T) {
	trace := conversation(t)
	o := Options{Policies: []string{"lru", "tenure"}, Capacities: []int{5859, 10_000}, Tree: true}
	before, err := Run(t.Context(), trace, o)
	if err != nil {
		t.Fatal(err)
	}
	for accesses, least := range map[int]float64{20_000: .85, 60_000: 1} {
		rows, err := Run(t.Context(), trace.thenAnew(accesses), o)
		if err != nil {
			t.Fatal(err)
		}
		hits := func(i int) float64 { return float64(rows[i].TotalHitTokens - before[i].TotalHitTokens) }
		for i, capacity := range o.Capacities {
			if lru, tenure := hits(i), hits(i+2); tenure < least*lru {
				t.Errorf("%d blocks, %d accesses after the change: %.3f of lru's hits, want %.2f", capacity, accesses, tenure/lru, least)
			}
		}
	}
}

// thenAnew returns the trace with so many accesses of its beginning behind it,
// of sessions that have nothing to do with those before.
func (t *Trace) thenAnew(accesses int) *Trace {
	n := uint32(t.Distinct())
	s := &Trace{
		blockTokens: t.blockTokens, promptTokens: t.promptTokens, notTree: t.notTree,
		blocks: slices.Clone(t.blocks), requests: slices.Clone(t.requests), parents: slices.Clone(t.parents),
	}
	for _, up := range t.parents {
		if up != 0 {
			up += n
		}
		s.parents = append(s.parents, up)
	}
	at := 0
	for _, req := range t.requests {
		if at >= accesses {
			break
		}
		for _, b := range t.blocks[at:req.end] {
			s.blocks = append(s.blocks, b+n)
		}
		at = req.end
		req.end = len(s.blocks)
		s.requests = append(s.requests, req)
		s.promptTokens += int64(req.tokens)
	}
	s.nextUse = sync.OnceValue(s.findNextUse)
	return s
}

// TestPlannedIsWholePrefixes: as for the other policies, and a second run is
// the same.
func TestPlannedIsWholePrefixes(t *testing.T) {
	for seed := range *seeds {
		trace := randomTrace(t, seed)
		for _, capacity := range []int{1, 3, 7, 20, 60} {
			for _, oracle := range []bool{false, true} {
				var prefixes [2][]int
				for run := range prefixes {
					p, err := newPlayer(trace, "tenure", capacity, &Options{Oracle: oracle})
					if err != nil {
						t.Fatal(err)
					}
					at := 0
					for _, req := range trace.requests {
						prefix, _ := p.request(at, trace.blocks[at:req.end])
						prefixes[run] = append(prefixes[run], prefix)
						at = req.end
						p.(*planned).check(t, "tenure")
					}
				}
				if !slices.Equal(prefixes[0], prefixes[1]) {
					t.Fatalf("seed %d, %d blocks: two runs differ", seed, capacity)
				}
			}
		}
	}
}

func TestPlannedNeedsATree(t *testing.T) {
	trace := parse(t, line("1, 2", "1024")+line("3, 2", "1024"))
	if _, err := Run(t.Context(), trace, Options{Policies: []string{"tenure"}, Capacities: []int{9}}); !errors.Is(err, replay.ErrTrace) {
		t.Errorf("two parents: error %v", err)
	}
}

// TestAnswers: how long the answers will be reaches the policy.
func TestAnswers(t *testing.T) {
	long, brief := strings.ReplaceAll(line("1, 2", "1024"), `"output_length": 1`, `"output_length": 300`), line("3, 4", "1024")
	for text, want := range map[string]policy.Hint{long: policy.LongAnswer, brief: policy.BriefAnswer} {
		told := &toldPlanner{}
		p := &planned{tree: &tree{}, planner: told, trace: parse(t, text), o: &Options{Answers: true}}
		if p.observe(0, []uint32{0, 1}); told.request.Hint != want || told.request.HintFrom != 0 {
			t.Errorf("told %+v, want hint %d", told.request, want)
		}
	}
}

type toldPlanner struct {
	policy.Planner
	request policy.Request
}

func (p *toldPlanner) Observe(r policy.Request) { p.request = r }

// TestOracle: to know which blocks are not used again is worth more than any policy.
func TestOracle(t *testing.T) {
	oracle(t, randomTrace(t, 0), 40, .05)
}

func TestPublishedOracle(t *testing.T) {
	oracle(t, conversation(t), 5859, .1)
}

func oracle(t *testing.T, trace *Trace, capacity int, worth float64) {
	t.Helper()
	o := Options{Policies: []string{"lru", "tenure"}, Capacities: []int{capacity}}
	plain, err := Run(t.Context(), trace, o)
	if err != nil {
		t.Fatal(err)
	}
	o.Oracle = true
	told, err := Run(t.Context(), trace, o)
	if err != nil {
		t.Fatal(err)
	}
	lru, tenure, hints := plain[0].OverallHitRate, plain[1].OverallHitRate, told[1].OverallHitRate
	if hints < tenure+worth || tenure < lru {
		t.Errorf("%.4f with hints, %.4f without, lru %.4f", hints, tenure, lru)
	}
}

func TestResample(t *testing.T) {
	trace := randomTrace(t, 1)
	o := Options{Policies: []string{"lru", "lfu", Belady}, Capacities: []int{10, 20}}
	spreads, err := Resample(t.Context(), trace, o, 5)
	if err != nil {
		t.Fatal(err)
	}
	if len(spreads) != 6 || spreads[0].Policy != "lru" || spreads[5].CapacityBlocks != 20 {
		t.Fatalf("%+v", spreads)
	}
	for i := range 2 {
		lru, lfu, belady := spreads[i], spreads[2+i], spreads[4+i]
		if math.Abs(lru.Lead+lfu.Lead) > 1e-9 || math.Abs(lru.Lead-(lru.Mean-lfu.Mean)) > 1e-9 || belady.Lead < 0 || lru.Deviation == 0 {
			t.Errorf("%+v, %+v, %+v", lru, lfu, belady)
		}
	}
	sample := trace.without(1)
	if n := sample.Requests(); n == 0 || n >= trace.Requests() {
		t.Errorf("%d of %d requests in a sample", n, trace.Requests())
	}
}
