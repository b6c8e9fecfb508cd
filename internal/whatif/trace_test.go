package whatif

import (
	"errors"
	"flag"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/kvstored/kvstored/internal/replay"
	"github.com/kvstored/kvstored/internal/simulate"
	"github.com/kvstored/kvstored/policy"
)

var (
	conversationTrace = flag.String("conversation", filepath.Join("..", "..", "..", "shared", "traces", "conversation_trace.jsonl"), "the conversation trace of TestWithinTwoPoints")
	agentTrace        = flag.String("agent200", os.Getenv("KVSTORED_AGENT200"), "the trace of agents of TestWithinTwoPoints: docs/eviction.md says how it is made")
	allPolicies       = flag.Bool("all-policies", false, "compare all policies in TestWithinTwoPoints, which takes minutes")
)

// read plays a trace into a book, as requests for its prompts would.
func read(t *testing.T, path string, blockTokens int, of sizes) *book {
	t.Helper()
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("the trace is not there: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := newBook(maxChunks)
	var hashes []uint64
	for req, err := range replay.Requests(f, path, blockTokens) {
		if err != nil {
			t.Fatal(err)
		}
		hashes = hashes[:0]
		for _, id := range req.BlockIDs[:req.InputTokens/blockTokens] {
			hashes = append(hashes, mix(id))
		}
		if len(hashes) == 0 || b.shift > 0 && !in(b.gate.of(len(hashes), func(i int) uint64 { return hashes[i] }), b.shift) {
			continue
		}
		b.add(hashes, &item{tokens: uint32(req.InputTokens), chunk: uint32(blockTokens)}, req.Millis)
		for b.full() {
			b.shrink(of)
		}
	}
	return b
}

// TestWithinTwoPoints: estimates from the sample are within two points of what all of a trace
// makes in the simulator, where the sample is a part of it.
func TestWithinTwoPoints(t *testing.T) {
	policies := []string{"lru", "s3fifo", "tenure"}
	if *allPolicies {
		policies = policy.All()
	}
	for name, tt := range map[string]struct {
		path       string
		dram, disk int
		whole      bool // all of it fits into the sample
	}{
		"conversation": {*conversationTrace, 5000, 15000, false},
		"agent200":     {*agentTrace, 2000, 6000, true},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.path == "" {
				t.Skip("the trace is named by -agent200 or KVSTORED_AGENT200")
			}
			b := read(t, tt.path, 512, sizes{int64(tt.dram / 2), int64(4 * (tt.dram + tt.disk))})
			s := b.copy()
			now := Tiers{DRAM: Tier{Bytes: 1, Chunks: int64(tt.dram), Policy: "lru"}, Disk: Tier{Bytes: 1, Chunks: int64(tt.disk), Policy: "lru"}, Write: simulate.Through}
			p := newPlay(s, now, simulate.DefaultPrefillDepth)
			t.Logf("1/%d of the sessions, %d prompts, %d chunks, %d heads, cut %v", 1<<s.shift, len(s.List), len(s.Parents), s.heads, b.cut)
			if whole := s.shift == 0; whole != tt.whole {
				t.Errorf("all of the trace is in the sample: %v", whole)
			}
			keep := p.report.Rows[:0]
			for _, r := range p.report.Rows {
				for _, name := range policies {
					if r.Policy == name {
						keep = append(keep, r)
					}
				}
			}
			p.report.Rows = keep
			for more := true; more; {
				var err error
				if more, err = p.step(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			compare(t, p, tt.path)
		})
	}
}

// compare simulates all of a trace for each row of a report.
func compare(t *testing.T, p *play, path string) {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := simulate.Read(f, path, simulate.Reading{BlockTokens: 512})
	if err != nil {
		t.Fatal(err)
	}
	worst, outside := 0.0, 0
	for _, r := range append(p.report.Rows, *p.report.Bound) {
		o := simulate.TierOptions{Policies: []string{"lru"}, DiskPolicies: []string{"lru"}, Capacities: []int{int(p.report.Now.DRAM.Chunks)}, DiskCapacity: []int{int(p.report.Now.Disk.Chunks)}, Writes: []simulate.Write{p.report.Now.Write}}
		switch {
		case r.Factor == 0:
			o.Capacities[0] = all.Distinct()
		case r.Tier == "cpu":
			o.Policies[0], o.Capacities[0] = r.Policy, int(r.Factor*float64(o.Capacities[0]))
		default:
			o.DiskPolicies[0], o.DiskCapacity[0] = r.Policy, int(r.Factor*float64(o.DiskCapacity[0]))
		}
		rows, err := simulate.RunTiers(t.Context(), all, o)
		if err != nil {
			t.Fatal(err)
		}
		hit, compute := r.Hit-rows[0].OverallHitRate, r.Compute-rows[0].OverallComputeRate
		t.Logf("%-5s %-7s %4v: hit %.4f, exact %.4f, off by %+.4f (error %.4f); compute %.4f, off by %+.4f (%.4f)", r.Tier, r.Policy, r.Factor,
			r.Hit, rows[0].OverallHitRate, hit, r.HitError, r.Compute, compute, r.ComputeError)
		worst = max(worst, math.Abs(hit), math.Abs(compute))
		if math.Abs(hit) > 3*r.HitError {
			outside++
		}
		if math.Abs(hit) > 0.02 || math.Abs(compute) > 0.02 {
			t.Errorf("%s %s %v: off by %+.4f and %+.4f", r.Tier, r.Policy, r.Factor, hit, compute)
		}
	}
	t.Logf("at most %.4f off; %d of %d outside of three standard errors", worst, outside, len(p.report.Rows)+1)
}
