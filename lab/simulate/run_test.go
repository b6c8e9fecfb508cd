package simulate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvstored/kvstored/lab/replay"
	"github.com/kvstored/kvstored/policy"
)

func line(ids string, tokens string) string {
	return `{"timestamp": 0, "input_length": ` + tokens + `, "output_length": 1, "hash_ids": [` + ids + `]}` + "\n"
}

func parse(t *testing.T, text string) *Trace {
	t.Helper()
	trace, err := Read(strings.NewReader(text), "t.jsonl", Reading{BlockTokens: 512, SaveUnfull: true})
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

// TestByHand: a hit ends at the end of the prompt, not of its last block, and
// a block that is resident behind one that is not counts for the blocks only.
func TestByHand(t *testing.T) {
	trace := parse(t, line("1, 2", "700")+line("1, 2", "700")+line("3, 2", "1024"))
	rows, err := Run(t.Context(), trace, Options{Policies: []string{"lru"}, Capacities: []int{2}})
	if err != nil {
		t.Fatal(err)
	}
	want := Row{
		Policy: "lru", CapacityBlocks: 2, Requests: 3, TotalPromptTokens: 2424, TotalHitTokens: 700,
		OverallHitRate: 700.0 / 2424, FinalCacheBlocks: 2, BlockAccesses: 6, BlockHits: 3, BlockMisses: 3,
	}
	short, long := 700+700.*700/60_000, 1024+1024.*1024/60_000
	want.OverallComputeRate = short / (short + short + long)
	if !reflect.DeepEqual(rows[0], want) {
		t.Errorf("%+v, want %+v", rows[0], want)
	}
	text, err := json.Marshal(rows)
	if err != nil {
		t.Fatal(err)
	}
	const names = `[{"policy":"lru","capacity_blocks":2,"requests":3,"total_prompt_tokens":2424,"total_hit_tokens":700,"overall_hit_rate":0.2887788778877888,"final_cache_blocks":2,"block_accesses":6,"block_hits":3,"block_misses":3,"overall_compute_rate":0.28812918082290295}]`
	if string(text) != names {
		t.Errorf("JSON %s, want %s", text, names)
	}
}

func TestReadSkips(t *testing.T) {
	text := line("1", "512") + "bad\n" + line("1", "512") + line("1", "9999")
	if _, err := Read(strings.NewReader(text), "t.jsonl", Reading{BlockTokens: 512, SaveUnfull: true}); !errors.Is(err, replay.ErrTrace) || !strings.Contains(err.Error(), "t.jsonl:2: ") {
		t.Errorf("error %v, want one about t.jsonl:2", err)
	}
	trace, err := Read(strings.NewReader(text), "t.jsonl", Reading{BlockTokens: 512, SaveUnfull: true, SkipBad: true})
	if err != nil || trace.Requests() != 2 || trace.Skipped != 2 || !strings.Contains(trace.Bad.Error(), "t.jsonl:2: ") {
		t.Errorf("%v requests, %d skipped, first %v, error %v", trace.Requests(), trace.Skipped, trace.Bad, err)
	}
	if _, err := Read(strings.NewReader("bad\n"), "t.jsonl", Reading{BlockTokens: 512, SaveUnfull: true, SkipBad: true}); !errors.Is(err, replay.ErrTrace) {
		t.Errorf("nothing but bad lines: error %v", err)
	}
}

func TestRunRefuses(t *testing.T) {
	trace := parse(t, line("1, 2", "1024")+line("3, 2", "1024"))
	for what, o := range map[string]Options{
		"an unknown policy":     {Policies: []string{"clock"}, Capacities: []int{1}},
		"no room":               {Policies: []string{"lru"}, Capacities: []int{0}},
		"a hand, leaves":        {Policies: []string{Sieve}, Capacities: []int{9}, Tree: true},
		"strict queues, leaves": {Policies: []string{Static}, Capacities: []int{9}, Tree: true},
	} {
		if rows, err := Run(t.Context(), trace, o); err == nil {
			t.Errorf("%s: %v", what, rows)
		}
	}
	_, err := Run(t.Context(), trace, Options{Policies: []string{"lru"}, Capacities: []int{9}, Tree: true})
	if !errors.Is(err, replay.ErrTrace) || !strings.Contains(err.Error(), "t.jsonl:2: ") {
		t.Errorf("two parents: error %v, want one about t.jsonl:2", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, trace, Options{Policies: []string{"lru"}, Capacities: []int{9}}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: error %v", err)
	}
}

// TestStaticIsNoTierPolicy: what needs hindsight or its own room is offered
// for simulations only.
func TestStaticIsNoTierPolicy(t *testing.T) {
	for _, name := range []string{Sieve, GDSF, Static, Belady, Infinite} {
		if slices.Contains(policy.Names(), name) {
			t.Errorf("tiers are offered %s", name)
		}
		if !slices.Contains(Policies(), name) {
			t.Errorf("simulations are not offered %s", name)
		}
	}
}

// TestTinyCapacities: shares round to nothing there; nothing may exceed its room.
func TestTinyCapacities(t *testing.T) {
	trace := readTrace(t, separating)
	o := Options{Policies: Policies(), Capacities: []int{1, 2, 3, 4, 5, 9, 10, 11, 15, 25, 101, 102, 103}}
	rows, err := Run(t.Context(), trace, o)
	if err != nil {
		t.Fatal(err)
	}
	bound := make(map[int]int)
	for _, r := range rows {
		if r.Policy == Belady {
			bound[r.CapacityBlocks] = r.BlockHits
		}
	}
	for _, r := range rows {
		if r.Policy == Infinite {
			continue
		}
		most := bound[r.CapacityBlocks]
		if NeedsTree(r.Policy) {
			most = r.BlockHits // Belady's must store everything, this one need not
		}
		if r.FinalCacheBlocks > r.CapacityBlocks || r.BlockHits > most {
			t.Errorf("%+v: too many blocks, or more hits than Belady's %d", r, bound[r.CapacityBlocks])
		}
	}
}

func TestSweep(t *testing.T) {
	for _, distinct := range []int{1, 2, 10, 102, 182_790, 20_000_000} {
		got := sweep(distinct)
		if !slices.IsSorted(got) || got[0] < 1 || got[len(got)-1] != distinct || len(slices.Compact(slices.Clone(got))) != len(got) || len(got) > 2*sweepOctaves+1 {
			t.Errorf("for %d blocks: %v", distinct, got)
		}
	}
}

// TestReadSorts: lines that are not in the order of time are counted and sorted, as the hit
// rate of a shuffled trace says nothing of its requests.
func TestReadSorts(t *testing.T) {
	at := func(millis, id int) string {
		return fmt.Sprintf(`{"timestamp": %d, "input_length": 512, "hash_ids": [%d]}`+"\n", millis, id)
	}
	text := at(0, 1) + at(5, 3) + at(2, 1) + at(7000, 4) + at(3, 2) // 1 1 2 3 4
	trace, err := Read(strings.NewReader(text), "t", Reading{BlockTokens: 512})
	if err != nil || trace.Late != 2 || trace.Lasts() != 7*time.Second {
		t.Fatalf("%d late, lasts %v, %v", trace.Late, trace.Lasts(), err)
	}
	rows, err := Run(t.Context(), trace, Options{Policies: []string{"lru"}, Capacities: []int{1}})
	if err != nil || rows[0].BlockHits != 1 {
		t.Errorf("%+v, %v", rows, err)
	}
	if _, err := Run(t.Context(), trace, Options{Policies: []string{"lru"}, Capacities: []int{1}, Answers: true}); !errors.Is(err, replay.ErrTrace) {
		t.Errorf("the lengths of answers are told, which the trace does not say: %v", err)
	}
}
