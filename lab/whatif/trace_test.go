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
	"testing/synctest"

	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/lab/replay"
	"github.com/kvstored/kvstored/lab/simulate"
	"github.com/kvstored/kvstored/policy"
)

var (
	conversationTrace = flag.String("conversation", "", "the conversation trace, for TestWithinTwoPoints")
	agentTrace        = flag.String("agent200", os.Getenv("KVSTORED_AGENT200"), "the trace of agents, for TestWithinTwoPoints: docs/eviction.md says how it is made")
	allPolicies       = flag.Bool("all-policies", false, "compare all policies in TestWithinTwoPoints, which takes minutes")
)

// read is what clients ask for who play a trace, whole chunks only.
func read(t *testing.T, trace []byte, blockTokens int) (out []asked) {
	t.Helper()
	for req, err := range replay.Requests(bytes.NewReader(trace), "trace", replay.Form{BlockTokens: blockTokens}) {
		if err != nil {
			t.Fatal(err)
		}
		if ids := req.BlockIDs[:req.InputTokens/blockTokens]; len(ids) > 0 {
			out = append(out, asked{ids: ids, chunk: blockTokens, tokens: req.InputTokens, millis: req.Millis})
		}
	}
	return out
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
		chunks     int // that the sample may have
		policies   []string
		whole      bool    // all of it fits into the sample
		most       float64 // that an estimate is off
	}{
		"made up":      {"", 1000, 3000, 1 << 13, []string{"lru", "tenure"}, false, .03},
		"conversation": {*conversationTrace, 5000, 15000, 0, []string{"lru", "s3fifo", "tenure"}, false, .02},
		"agent200":     {*agentTrace, 2000, 6000, 0, []string{"lru", "s3fifo", "tenure"}, true, .02},
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
			now := explain.Tiers{DRAM: explain.Tier{Bytes: 1, Chunks: int64(tt.dram), Policy: "lru"}, Disk: explain.Tier{Bytes: 1, Chunks: int64(tt.disk), Policy: "lru"}, Write: "through"}
			var s *explain.Sample
			synctest.Test(t, func(t *testing.T) { s = record(t, now, tt.chunks, read(t, trace, 512)) })
			t.Logf("1/%d of the sessions, %d prompts, %d chunks, %d heads", 1<<s.Shift, len(s.Prompts), len(s.Parents), s.Heads)
			if whole := s.Shift == 0; whole != tt.whole {
				t.Errorf("all of the trace is in the sample: %v", whole)
			}
			p := newPlay(s, simulate.DefaultPrefillDepth)
			p.report.Rows = slices.DeleteFunc(p.report.Rows, func(r Row) bool { return !slices.Contains(tt.policies, r.Policy) })
			if err := p.all(t.Context(), func(*Row) {}); err != nil {
				t.Fatal(err)
			}
			compare(t, p, trace, tt.most)
		})
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
		o := simulate.TierOptions{Policies: []string{"lru"}, DiskPolicies: []string{"lru"}, Capacities: []int{int(p.report.Now.DRAM.Chunks)}, DiskCapacity: []int{int(p.report.Now.Disk.Chunks)}, Writes: []simulate.Write{simulate.Write(p.report.Now.Write)}}
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
