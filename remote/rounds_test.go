package remote

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/test/s3test"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// TestRounds counts how many request times a prefix takes that this machine
// knows nothing of: its first chunk 3 at most, all of 64 no more than the
// concurrency makes necessary and 3.
func TestRounds(t *testing.T) {
	const chunks = 64
	for _, concurrency := range []int{4, 16, 64} {
		t.Run(fmt.Sprint(concurrency), func(t *testing.T) {
			virtual(t, func(t *testing.T, s *s3test.Memory, m tiertest.Allocator) {
				c := tiertest.Chain(1, chunks)
				put(t, connect(t, virtualOptions(s)), m, c, 0, chunks, 64*kib)
				o := virtualOptions(s)
				o.Concurrency = concurrency
				h := newHost(t, o, tier.BreakerOptions{})
				l := h.prefetch(c, time.Minute)
				if l.err != nil || len(l.ready) != chunks {
					t.Fatalf("%d chunks are ready, error %v", len(l.ready), l.err)
				}
				first, all := l.ready[0], l.ready[chunks-1]
				t.Logf("concurrency %d: the first chunk after %d request times, all after %d", concurrency, first/latency, all/latency)
				if most := time.Duration(chunks/concurrency + 3); first > 3*latency || all > most*latency {
					t.Errorf("the first chunk was ready after %v, all after %v; want %v and %v", first, all, 3*latency, most*latency)
				}
			})
		})
	}
}

// TestFindRounds counts the requests that finding the prefix of a prompt takes.
func TestFindRounds(t *testing.T) {
	const chunks = 512
	for present := 0; present <= chunks; present += 128 {
		virtual(t, func(t *testing.T, s *s3test.Memory, m tiertest.Allocator) {
			c := tiertest.Chain(1, chunks)
			put(t, connect(t, virtualOptions(s)), m, c, 0, present, 100)
			r := connect(t, virtualOptions(s))
			start, before := time.Now(), s.Count(http.MethodHead)
			n, err := r.Find(t.Context(), tiertest.Keys(c, 0, chunks), nil)
			took, heads := time.Since(start), s.Count(http.MethodHead)-before
			if n != present || err != nil || took > 3*latency || heads > 3*findWidth {
				t.Errorf("%d of %d: found %d in %v with %d HEADs, error %v", present, chunks, n, took, heads, err)
			}
			if present == chunks {
				return
			}
			// A chunk that was just absent is not asked for again. A HEAD that Find
			// gave up may still be on its way here.
			synctest.Wait()
			before = s.Count(http.MethodHead)
			n, err = r.Find(t.Context(), tiertest.Keys(c, present, chunks), nil)
			if heads := s.Count(http.MethodHead) - before; n != 0 || err != nil || heads != 0 {
				t.Errorf("%d of %d, asked again: found %d with %d HEADs, error %v", present, chunks, n, heads, err)
			}
		})
	}
}
