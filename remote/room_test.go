package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/test/s3test"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// refusing is an Allocator that has no room; late if it says so only when the
// context ends.
type refusing struct {
	err  error
	late bool
}

func (r refusing) Alloc(ctx context.Context, _ int) (arena.Block, error) {
	if r.late {
		<-ctx.Done()
	}
	return arena.Block{}, r.err
}

// TestNoRoom: the error of an Allocator is passed on and changes nothing: the
// object is not taken for absent, corrupt or late, nothing is asked for again,
// and no breaker opens.
func TestNoRoom(t *testing.T) {
	for _, a := range []refusing{
		{err: fmt.Errorf("a client is filling it: %w", tier.ErrNotFound)},
		{err: fmt.Errorf("the memory is bad: %w", tier.ErrCorrupt)},
		{err: tier.ErrNoSpace},
		{err: fmt.Errorf("waited: %w", tier.ErrNoSpace), late: true},
		{err: fmt.Errorf("waited: %w: %w", tier.ErrNoSpace, errTimeout), late: true},
		{err: tier.ErrOverBudget},
		{err: fmt.Errorf("%w: %w", tier.ErrOverQuota, &Error{Op: "put", Status: http.StatusServiceUnavailable, Code: "SlowDown"})},
	} {
		t.Run(a.err.Error(), func(t *testing.T) {
			virtual(t, func(t *testing.T, s *s3test.Memory, m tiertest.Allocator) {
				const calls = 10 // more than open a breaker
				far := connect(t, virtualOptions(s))
				r := tier.WithBreaker(far, tier.BreakerOptions{})
				c := tiertest.Chain(1, 1)
				put(t, r, m, c, 0, 1, kib)
				before := s.Count("")
				for range calls {
					if _, err := r.Get(t.Context(), c.Key(0), a); !errors.Is(err, a.err) {
						t.Fatalf("got %v; want %v", err, a.err)
					}
				}
				if n := s.Count("") - before; n != calls {
					t.Errorf("%d gets made %d requests", calls, n)
				}
				st := r.Stats()
				if far.Absent(c.Key(0)) || st.Counters["gets_stale"] != 0 || st.Corrupt != 0 || st.Counters["slow_downs"] != 0 {
					t.Errorf("the store is blamed: absent %t, %+v", far.Absent(c.Key(0)), st)
				}
				start := time.Now()
				if err := get(t, r, m, c.Key(0)); err != nil || st.Off {
					t.Errorf("with room: %v, switched off: %t", err, st.Off)
				}
				if took := time.Since(start); took != latency {
					t.Errorf("with room it takes %v; want %v", took, latency)
				}
			})
		})
	}
}
