package simulate

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

var (
	traces = flag.String("traces", "", "the folder of the published traces, which are not part of this module; tests of them take a minute, and are skipped without it")
	seeds  = flag.Uint64("simulate.seeds", 1, "random traces of each test that compares with a model")
)

// conversation reads the published trace, or skips the test.
func conversation(t testing.TB) *Trace {
	t.Helper()
	if *traces == "" {
		t.Skip("-traces names no folder of traces")
	}
	trace, err := readConversation()
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

var readConversation = sync.OnceValues(func() (*Trace, error) {
	path := filepath.Join(*traces, "conversation_trace.jsonl")
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Read(f, path, Reading{BlockTokens: 512, SaveUnfull: true})
})

// TestPublishedCounts: every policy makes of the published trace exactly what
// other simulators make of it.
func TestPublishedCounts(t *testing.T) {
	trace := conversation(t)
	text, err := os.ReadFile(filepath.Join(*traces, "conversation_expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		Policy    string `json:"policy"`
		Capacity  int    `json:"capacity_blocks"`
		Misses    int    `json:"block_misses"`
		HitTokens int64  `json:"total_hit_tokens"`
		Final     int    `json:"final_cache_blocks"`
	}
	var want struct {
		Requests     int      `json:"requests"`
		Accesses     int      `json:"block_accesses"`
		Distinct     int      `json:"unique_blocks"`
		PromptTokens int64    `json:"total_prompt_tokens"`
		Results      []result `json:"results"`
	}
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	if trace.Requests() != want.Requests || trace.Accesses() != want.Accesses || trace.Distinct() != want.Distinct {
		t.Fatalf("the trace has %d requests, %d accesses, %d blocks", trace.Requests(), trace.Accesses(), trace.Distinct())
	}
	if len(want.Results) != 40 {
		t.Fatalf("%d rows are expected, want 40", len(want.Results))
	}
	type cell struct {
		policy   string
		capacity int
	}
	got := make(map[cell]Row)
	var o Options
	for _, w := range want.Results {
		if !slices.Contains(o.Policies, w.Policy) {
			o.Policies = append(o.Policies, w.Policy)
		}
		if !slices.Contains(o.Capacities, w.Capacity) {
			o.Capacities = append(o.Capacities, w.Capacity)
		}
	}
	rows, err := Run(t.Context(), trace, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		got[cell{r.Policy, r.CapacityBlocks}] = r
	}
	for _, w := range want.Results {
		r := got[cell{w.Policy, w.Capacity}]
		if r.BlockMisses != w.Misses || r.TotalHitTokens != w.HitTokens || r.FinalCacheBlocks != w.Final || r.TotalPromptTokens != want.PromptTokens {
			t.Errorf("%s at %d: %d misses, %d hit tokens, %d blocks in the end; want %d, %d, %d",
				w.Policy, w.Capacity, r.BlockMisses, r.TotalHitTokens, r.FinalCacheBlocks, w.Misses, w.HitTokens, w.Final)
		}
	}
}
