package remote

import (
	"net/http"
	"testing"
	"testing/quick"

	"github.com/kvstored/kvstored/internal/test/s3test"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// TestProbes searches in memory: any end must be found, in runs of any length
// and with any hint, and that of 512 chunks in three rounds.
func TestProbes(t *testing.T) {
	search := func(n, end, hint int) (rounds, asked int) {
		lo, hi := 0, n
		for at := firstProbes(n, min(hint, n)); lo < hi; at = spread(lo, hi, nil) {
			rounds, asked = rounds+1, asked+len(at)
			if len(at) == 0 || len(at) > findWidth {
				t.Fatalf("%d probes in %d..%d", len(at), lo, hi)
			}
			for _, i := range at {
				if i < lo || i >= hi {
					t.Fatalf("probe %d is outside %d..%d", i, lo, hi)
				}
				if i >= end {
					hi = i
					break
				}
				lo = i + 1
			}
		}
		if lo != end {
			t.Fatalf("found %d of %d; want %d", lo, n, end)
		}
		return rounds, asked
	}
	for n := 1; n <= 512; n += 1 + n/30 {
		for end := 0; end <= n; end += 1 + n/40 {
			for _, hint := range []int{0, 1, n / 2, end, n} {
				if rounds, asked := search(n, end, hint); rounds > 3 || asked > 3*findWidth {
					t.Fatalf("%d of %d chunks with hint %d: %d rounds, %d requests", end, n, hint, rounds, asked)
				}
			}
		}
	}
	if rounds, _ := search(512, 300, 300); rounds != 1 {
		t.Errorf("a hint that is right took %d rounds", rounds)
	}
	if err := quick.Check(func(n, end, hint uint16) bool {
		search(int(n)+1, int(end)%(int(n)+2), int(hint)%(int(n)+2))
		return true
	}, nil); err != nil {
		t.Error(err)
	}
}

// TestFind finds the chunks that are present; TestFindRounds counts the requests.
func TestFind(t *testing.T) {
	virtual(t, func(t *testing.T, s *s3test.Memory, m tiertest.Allocator) {
		const n = 512
		for _, present := range []int{0, 1, n / 2, n} {
			c := tiertest.Chain(uint64(present)+1, n)
			put(t, connect(t, virtualOptions(s)), m, c, 0, present, 100)

			r := connect(t, virtualOptions(s)) // knows nothing
			last := 0
			got, err := r.Find(t.Context(), tiertest.Keys(c, 0, n), func(n int) {
				if n < last {
					t.Errorf("%d chunks were there, now %d", last, n)
				}
				last = n
			})
			if err != nil || got != present || last != present {
				t.Errorf("found %d (%d on the way) of %d, error %v", got, last, present, err)
			}
			if present < n {
				if got, err := r.Find(t.Context(), tiertest.Keys(c, present, n), nil); got != 0 || err != nil || !r.Absent(c.Key(present)) {
					t.Errorf("asked again: %d, error %v", got, err)
				}
			}
		}
	})
}

// TestListing: listed chunks are found in one round.
func TestListing(t *testing.T) {
	virtual(t, testListing)
}

func testListing(t *testing.T, s *s3test.Memory, m tiertest.Allocator) {
	c := tiertest.Chain(1, 64)
	put(t, connect(t, virtualOptions(s)), m, c, 0, 40, 100)
	r := connect(t, virtualOptions(s))
	if n, err := r.loadNames(t.Context()); n != 40 || err != nil {
		t.Fatalf("listed %d objects, error %v; want 40", n, err)
	}
	got, err := r.Find(t.Context(), tiertest.Keys(c, 0, 64), nil)
	if got != 40 || err != nil || s.Count(http.MethodHead) > findWidth {
		t.Errorf("found %d in %d HEADs, error %v", got, s.Count(http.MethodHead), err)
	}
	// Another space stays when one is purged.
	other := tiertest.Chain(2, 1)
	put(t, r, m, other, 0, 1, 100)
	var gone int
	purged, err := r.Purge(t.Context(), c.Space, "", false, func(key.Key) { gone++ })
	if want := (tier.Purged{Found: 40, Bytes: 40 * 100}); purged != want || gone != 40 || err != nil {
		t.Errorf("purged %+v, told of %d, error %v; want %+v", purged, gone, err, want)
	}
	have := make([]bool, 2)
	fresh := connect(t, virtualOptions(s))
	if err := fresh.Contains(t.Context(), append(tiertest.Keys(c, 0, 1), other.Key(0)), have); err != nil || have[0] || !have[1] {
		t.Errorf("after the purge: %v, error %v", have, err)
	}
}
