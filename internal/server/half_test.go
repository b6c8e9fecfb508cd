package server

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// sharedTier makes a tier of plain memory one that others fill: its chunks are
// found by asking, which takes as long as a load.
type sharedTier struct {
	tier.Tier // hides that it is bounded
	memory    *tiertest.Memory
	asked     sync.Mutex
	find      error // what Find says instead
	off       bool
}

// errFindHangs has Find hang until its context ends.
var errFindHangs = errors.New("hangs")

// Off is what a breaker says.
func (s *sharedTier) Off() bool { return s.off }

func (*sharedTier) Trouble() error { return nil }

func (*sharedTier) Absent(key.Key) bool { return false }

func (s *sharedTier) Find(ctx context.Context, ks []key.Key, found func(int)) (int, error) {
	s.asked.Lock() // one question at a time
	defer s.asked.Unlock()
	if errors.Is(s.find, errFindHangs) {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	if s.find != nil {
		time.Sleep(remoteTime)
		return 0, s.find
	}
	n := 0
	for have := make([]bool, 1); n < len(ks); n++ {
		if n%64 == 0 {
			select {
			case <-time.After(remoteTime):
			case <-ctx.Done():
				return n, ctx.Err()
			}
		}
		if err := s.memory.Contains(ctx, ks[n:n+1], have); err != nil || !have[0] {
			return n, err
		}
		found(n + 1)
	}
	return n, nil
}

func (*sharedTier) Renewed(context.Context, []key.Key, []bool) error { return nil }

func (*sharedTier) Purge(context.Context, key.SpaceID, string, bool, func(key.Key)) (tier.Purged, error) {
	return tier.Purged{}, nil
}

// A chain of which one half is on disk and the other in the remote tier is there
// when the slower half is, give or take 15 %: with the remote half known or not,
// with either half first, within the window or far beyond it.
func TestHalfAndHalf(t *testing.T) {
	const half = 64
	times := func(t *testing.T, at string, window int64) (took time.Duration) {
		s := script{at: at, o: Prefetch{WindowBytes: window}}
		s.loads[tier.Disk] = tier.Limit{Loads: 2}   // 320 ms
		s.loads[tier.Remote] = tier.Limit{Loads: 6} // 330 ms
		play(t, s, func(t *testing.T, g *stage) {
			start := time.Now()
			j := g.prefetch(&wire.PrefetchRequest{})
			g.done(j)
			took = time.Since(start)
			if st := j.state(0); st.Code != fine || int(st.Ready.Chunks) != len(at) {
				t.Errorf("%s: %+v", at, st)
			}
			g.checkBytes(j)
		})
		return took
	}
	d, r, u := strings.Repeat("d", half), strings.Repeat("r", half), strings.Repeat("u", half)
	for name, tc := range map[string]struct{ first, second string }{
		"disk, then remote":             {d, r},
		"remote, then disk":             {r, d},
		"disk, then nobody knows where": {d, u},
	} {
		for size, window := range map[string]int64{"all in the window": 2 * half * scriptSize, "an eighth in the window": half / 4 * scriptSize} {
			t.Run(name+", "+size, func(t *testing.T) {
				a, b, both := times(t, tc.first, window), times(t, tc.second, window), times(t, tc.first+tc.second, window)
				t.Logf("alone %v and %v, together %v: %.2f", a, b, both, both.Seconds()/max(a, b).Seconds())
				if both > max(a, b)*115/100 {
					t.Errorf("together %v; alone %v and %v", both, a, b)
				}
			})
		}
	}
}

// The chunks of each tier are asked for in the order of the prompt, also where the first
// part comes from another.
func TestEachTierInOrder(t *testing.T) {
	const half = 16
	for _, at := range []string{strings.Repeat("d", half) + strings.Repeat("r", half), strings.Repeat("r", half) + strings.Repeat("d", half), strings.Repeat("dr", half)} {
		for range 10 { // the scheduler has its own order
			var mu sync.Mutex
			asked := make(map[key.Hash]int)
			s := script{at: at, o: Prefetch{WindowBytes: 2 * half * scriptSize}}
			s.loads[tier.Disk], s.loads[tier.Remote] = tier.Limit{Loads: 1}, tier.Limit{Loads: 1}
			s.fault = func(c tierfault.Call) (f tierfault.Fault, ok bool) {
				if c.Op == tierfault.Get {
					mu.Lock()
					defer mu.Unlock()
					asked[c.Keys[0].Hash] = len(asked)
				}
				return f, false
			}
			play(t, s, func(t *testing.T, g *stage) {
				g.done(g.prefetch(&wire.PrefetchRequest{}))
				for _, of := range []byte{'d', 'r'} {
					last := -1
					for i := range at {
						if n := asked[g.chain.Hashes[i]]; at[i] == of {
							if n < last {
								t.Errorf("%s: chunk %d was asked for before one of its tier that is before it", at, i)
							}
							last = max(n, last)
						}
					}
				}
			})
		}
	}
}
