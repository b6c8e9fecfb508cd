package server

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/key"
)

// TestRecentIsBounded: the names of a client take at most 3/2 of maxRecentBytes on
// the heap, for prompts of any length and number of ranks.
func TestRecentIsBounded(t *testing.T) {
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	for _, tc := range []struct{ ranks, chunks, names int }{{1, 1, 80_000}, {8, 1, 40_000}, {1024, 2, 400}, {1, 1024, 2000}} {
		t.Run(fmt.Sprint(tc), func(t *testing.T) {
			var r recent
			before := heap()
			for i := range tc.names {
				shared := key.Chain{Hashes: make([]key.Hash, tc.chunks), Tokens: make([]uint32, tc.chunks)}
				chains := make([]key.Chain, tc.ranks)
				for rank := range chains {
					chains[rank] = shared
				}
				r.add(asked{1, fmt.Sprint(i)}, nil, chains)
			}
			if took := heap() - before; took > maxRecentBytes*3/2 {
				t.Errorf("%d names take %d MiB, counted as %d", r.mu.order.Len(), took>>20, r.mu.bytes>>20)
			}
			if r.get(asked{1, fmt.Sprint(tc.names - 1)}, nil) == nil {
				t.Error("the newest is forgotten")
			}
			runtime.KeepAlive(&r)
		})
	}
}

// TestRecentForgetsEmpty: a prompt without a chunk is not remembered, nor is the
// one that had its name before.
func TestRecentForgetsEmpty(t *testing.T) {
	var r recent
	one := []key.Chain{{Hashes: make([]key.Hash, 1), Tokens: make([]uint32, 1)}}
	r.add(asked{1, "a"}, nil, one)
	r.add(asked{1, "a"}, nil, make([]key.Chain, 1))
	if r.get(asked{1, "a"}, nil) != nil || r.mu.order.Len() != 0 || r.mu.bytes != 0 {
		t.Errorf("%d names with %d bytes are left", r.mu.order.Len(), r.mu.bytes)
	}
}

// TestRecentOutcomes: a prompt is found by its name, and by what an engine made a longer one of.
func TestRecentOutcomes(t *testing.T) {
	var r recent
	one := []key.Chain{{Hashes: make([]key.Hash, 1), Tokens: make([]uint32, 1)}}
	for _, name := range []string{"cmpl-8ac", "cmpl-8acf-0-ae48", "cmpl-8acf-1-ae48"} {
		r.add(asked{1, name}, nil, one)
	}
	for name, want := range map[string]int{"cmpl-8ac": 1, "cmpl-8acf": 2, "cmpl-8acf-1": 1, "cmpl-8acf-1-ae48": 1, "cmpl-8acf-1-ae4": 0, "": 0} {
		if got := len(r.outcomes(name)); got != want {
			t.Errorf("%q finds %d prompts, want %d", name, got, want)
		}
	}
}

// TestRecentByPolicy: what a user might read when it asked is not given under
// another policy.
func TestRecentByPolicy(t *testing.T) {
	var r recent
	before, after := new(access.Policy), new(access.Policy)
	one := []key.Chain{{Hashes: make([]key.Hash, 1), Tokens: make([]uint32, 1)}}
	r.add(asked{1, "a"}, before, one)
	if r.get(asked{1, "a"}, before) == nil || r.get(asked{1, "a"}, after) != nil || r.get(asked{2, "a"}, before) != nil {
		t.Error("a name counts for another user, or under another policy")
	}
}
