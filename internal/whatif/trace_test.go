package whatif

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/kvstored/kvstored/internal/replay"
	"github.com/kvstored/kvstored/internal/simulate"
	"github.com/kvstored/kvstored/policy"
)

var (
	conversationTrace = flag.String("conversation", "", "the conversation trace, for TestWithinTwoPoints")
	agentTrace        = flag.String("agent200", os.Getenv("KVSTORED_AGENT200"), "the trace of agents, for TestWithinTwoPoints: docs/eviction.md says how it is made")
	allPolicies       = flag.Bool("all-policies", false, "compare all policies in TestWithinTwoPoints, which takes minutes")
)

// read plays a trace into a book with room for so many chunks, as requests for its prompts would.
func read(t *testing.T, trace []byte, blockTokens, room int, of sizes) *book {
	t.Helper()
	b := newBook(room)
	var hashes []uint64
	for req, err := range replay.Requests(bytes.NewReader(trace), "trace", blockTokens) {
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

// madeUp is a trace of conversations that begin with the same four blocks, some of which
// go on for long.
func madeUp() []byte {
	var text bytes.Buffer
	rng, next, sessions := rand.New(rand.NewPCG(24, 3)), uint64(4), [][]uint64{}
	for at := range 6000 {
		if at%4 == 0 {
			sessions = append(sessions, []uint64{0, 1, 2, 3})
		}
		i := max(rng.IntN(len(sessions)), len(sessions)-1-rng.IntN(300)) // mostly one of late
		for range 1 + rng.IntN(5) {
			sessions[i] = append(sessions[i], next)
			next++
		}
		ids, _ := json.Marshal(sessions[i])
		fmt.Fprintf(&text, `{"timestamp": %d, "input_length": %d, "output_length": 1, "hash_ids": %s}`+"\n", 10*at, 512*len(sessions[i]), ids)
	}
	return text.Bytes()
}

// TestWithinTwoPoints: estimates from the sample are within two points of what all of a trace
// makes in the simulator, where the sample is a part of it; three where it has 400 sessions.
func TestWithinTwoPoints(t *testing.T) {
	for name, tt := range map[string]struct {
		path       string
		dram, disk int
		room       int
		policies   []string
		whole      bool    // all of it fits into the sample
		most       float64 // that an estimate is off
	}{
		"made up":      {"", 1000, 3000, leastChunks, []string{"lru", "tenure"}, false, .03},
		"conversation": {*conversationTrace, 5000, 15000, maxChunks, []string{"lru", "s3fifo", "tenure"}, false, .02},
		"agent200":     {*agentTrace, 2000, 6000, maxChunks, []string{"lru", "s3fifo", "tenure"}, true, .02},
	} {
		t.Run(name, func(t *testing.T) {
			trace := madeUp()
			if name != "made up" {
				if tt.path == "" {
					t.Skip("the trace is named by -" + name + ", this one also by KVSTORED_AGENT200")
				}
				var err error
				if trace, err = os.ReadFile(tt.path); err != nil {
					t.Fatal(err)
				}
			}
			if *allPolicies {
				tt.policies = policy.All()
			}
			b := read(t, trace, 512, tt.room, sizes{int64(tt.dram / 2), int64(4 * (tt.dram + tt.disk))})
			s := b.copy()
			now := Tiers{DRAM: Tier{Bytes: 1, Chunks: int64(tt.dram), Policy: "lru"}, Disk: Tier{Bytes: 1, Chunks: int64(tt.disk), Policy: "lru"}, Write: simulate.Through}
			p := newPlay(s, now, simulate.DefaultPrefillDepth)
			t.Logf("1/%d of the sessions, %d prompts, %d chunks, %d heads, cut %v", 1<<s.shift, len(s.List), len(s.Parents), s.heads, b.cut)
			if whole := s.shift == 0; whole != tt.whole {
				t.Errorf("all of the trace is in the sample: %v", whole)
			}
			p.report.Rows = slices.DeleteFunc(p.report.Rows, func(r Row) bool { return !slices.Contains(tt.policies, r.Policy) })
			p.all(t)
			compare(t, p, trace, tt.most)
		})
	}
}

// all plays all rows.
func (p *play) all(t *testing.T) {
	t.Helper()
	for more := true; more; {
		var err error
		if more, err = p.step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// compare simulates all of a trace for each row of a report.
func compare(t *testing.T, p *play, trace []byte, most float64) {
	all, err := simulate.Read(bytes.NewReader(trace), "trace", simulate.Reading{BlockTokens: 512})
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
		if math.Abs(hit) > most || math.Abs(compute) > most {
			t.Errorf("%s %s %v: off by %+.4f and %+.4f", r.Tier, r.Policy, r.Factor, hit, compute)
		}
	}
	t.Logf("at most %.4f off; %d of %d outside of three standard errors", worst, outside, len(p.report.Rows)+1)
}
