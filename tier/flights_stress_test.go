package tier_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvstored/kvstored/tier"
)

// TestStress lets callers come, leave and fail in every order. In all of them
// each key has one fetch at a time and no reference is left over.
func TestStress(t *testing.T) {
	const keys, callers, rounds = 3, 16, 300
	g := &tier.Flights[int, ref]{
		Clone:   ref.clone,
		Discard: ref.release,
	}
	var (
		running [keys]atomic.Int32
		mu      sync.Mutex
		made    []ref
		wg      sync.WaitGroup
	)
	fetch := func(k, n int) tier.Fetch[ref] {
		return func(ctx context.Context) (ref, error) {
			if running[k].Add(1) != 1 {
				t.Error("two fetches of one key at a time")
			}
			defer running[k].Add(-1)
			switch n % 5 {
			case 0:
				return ref{}, errTry
			case 1:
				<-ctx.Done()
				return ref{}, ctx.Err()
			}
			v := newRef()
			mu.Lock()
			made = append(made, v)
			mu.Unlock()
			return v, nil
		}
	}
	for c := range callers {
		wg.Go(func() {
			for i := range rounds {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration((i*7+c)%100+1)*time.Microsecond)
				if v, err := g.Do(ctx, (c+i)%keys, fetch((c+i)%keys, c*3+i)); err == nil {
					v.release()
				}
				cancel()
			}
		})
	}
	wg.Wait()
	g.Wait()
	if len(made) == 0 {
		t.Error("no fetch ever succeeded")
	}
	for _, v := range made {
		wantRefs(t, v, 0)
	}
}
