package simulate

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/kvstored/kvstored/internal/raced"
)

// traces is where the published traces lie on some machines; they are not
// part of this module.
var traces = filepath.Join("..", "..", "..", "shared", "traces")

// conversation reads the published trace, or skips the test.
func conversation(t testing.TB) *Trace {
	t.Helper()
	trace, err := readConversation()
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("the published trace is not there: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	return trace
}

var readConversation = sync.OnceValues(func() (*Trace, error) {
	path := filepath.Join(traces, "conversation_trace.jsonl")
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
	text, err := os.ReadFile(filepath.Join(traces, "conversation_expected.json"))
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
	if raced.On {
		o.Capacities = o.Capacities[:1]
		want.Results = slices.DeleteFunc(want.Results, func(w result) bool { return w.Capacity != o.Capacities[0] })
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
