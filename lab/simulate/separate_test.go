package simulate

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kvstored/kvstored/policy/policytest"
)

// separating is a made-up trace, small enough for the models, on which no two
// policies do the same.
var separating = filepath.Join("testdata", "separating.jsonl")

const separatingCapacity = 20

func readTrace(t testing.TB, path string) *Trace {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	trace, err := Read(f, path, Reading{BlockTokens: 512, SaveUnfull: true})
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

// TestSeparatingTrace: every policy does what its model does, no two do the
// same, and the trace leads through the corners of each.
func TestSeparatingTrace(t *testing.T) {
	trace := readTrace(t, separating)
	// Whole prefixes have their own tests, in package policytest and here.
	names := slices.DeleteFunc(Policies(), NeedsTree)
	rows, err := Run(t.Context(), trace, Options{Policies: names, Capacities: []int{separatingCapacity}})
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range rows {
		model := newSlow(trace, r.Policy, separatingCapacity)
		want := slowRow(trace, model)
		want.Policy, want.CapacityBlocks = r.Policy, r.CapacityBlocks
		if !same(&r, &want) {
			t.Errorf("%s:\n%+v, its model\n%+v", r.Policy, r, want)
		}
		checkCorners(t, r.Policy, model)
		for _, other := range rows[:i] {
			if r.BlockMisses == other.BlockMisses || r.TotalHitTokens == other.TotalHitTokens {
				t.Errorf("%s and %s are the same to this trace", r.Policy, other.Policy)
			}
		}
	}
}

func checkCorners(t *testing.T, name string, model slow) {
	t.Helper()
	if m, ok := model.(*slowStatic); ok && (m.saturated == 0 || m.ghostHit == 0) {
		t.Errorf("%s: %d saturated, %d ghosts met", name, m.saturated, m.ghostHit)
	}
	m, ok := model.(*slowPolicy)
	if !ok {
		return
	}
	switch m := m.model.(type) {
	case *slowSieve:
		if m.wraps == 0 {
			t.Errorf("%s: the hand never begins again", name)
		}
		return
	case *slowGDSF:
		if m.ties == 0 {
			t.Errorf("%s: no two are equal", name)
		}
		return
	}
	events := policytest.Events(m.model)
	for _, corner := range map[string][]string{
		"lfu": {"tie"}, "arc": {"b1", "b2"}, "s3fifo": {"ghost", "saturated"},
	}[name] {
		if events[corner] == 0 {
			t.Errorf("%s: the trace has no %s", name, corner)
		}
	}
}
