package prefetch_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/prefetch"
)

// origins is a Source of which each origin serves so many loads at a time.
type origins struct {
	*script
	of    func(i int) int
	slots [2]chan struct{}
	mu    sync.Mutex
	began [2][]int
}

func (o *origins) Load(ctx context.Context, i int) (chunk, int64, error) {
	l := o.of(i)
	o.mu.Lock()
	o.began[l] = append(o.began[l], i)
	o.mu.Unlock()
	base.Queued(ctx)
	select {
	case o.slots[l] <- struct{}{}:
	case <-ctx.Done():
		return chunk{}, 0, ctx.Err()
	}
	defer func() { <-o.slots[l] }()
	return o.script.Load(ctx, i)
}

// In any order of the pieces, those from two origins are there when the slower one
// is done, though the window holds a fraction of either part. Where it holds one piece
// the lanes take turns in the order of the prefix.
func TestLanes(t *testing.T) {
	for name, of := range map[string]func(i int) int{
		"one half after the other": func(i int) int { return i / 100 },
		"the other first":          func(i int) int { return 1 - i/100 },
		"alternating":              func(i int) int { return i % 2 },
		"in turns":                 func(i int) int { return i / 10 % 2 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &origins{script: newScript(1, evenly(200, time.Second)...), of: of}
				for i := range s.steps {
					if of(i) == 1 {
						s.steps[i].after = 2 * time.Second
					}
				}
				s.slots[0], s.slots[1] = make(chan struct{}, 4), make(chan struct{}, 8) // 25 s each
				o := s.options()
				o.Window, o.Lanes, o.Lane = 20, 2, of
				j := prefetch.New(o, s)
				start := time.Now()
				j.Run(t.Context())
				if d := time.Since(start); d > 29*time.Second {
					t.Errorf("all took %s; 25 s is what either part takes", d)
				}
				s.check(t, j, 200, nil)
				for l, began := range s.began {
					if len(began) != 100 {
						t.Errorf("lane %d began %d loads", l, len(began))
					}
					for i := range began[1:] {
						if began[i] > began[i+1]+20 { // those that start together do in any order
							t.Errorf("lane %d began chunk %d before %d", l, began[i], began[i+1])
						}
					}
				}
				if s.most > 20 {
					t.Errorf("%d loads at a time; the window holds 20", s.most)
				}
			})
			synctest.Test(t, func(t *testing.T) {
				s := newScript(1, evenly(200, time.Second)...)
				o := s.options()
				o.Window, o.Lanes, o.Lane = 1, 2, of
				j := prefetch.New(o, s)
				j.Run(t.Context())
				s.check(t, j, 200, nil)
				if !slices.IsSorted(s.starts) {
					t.Errorf("one load fits at a time, and they began in the order %v", s.starts)
				}
			})
		})
	}
}

// A failure in one lane ends what lies behind it in both.
func TestLanesEndTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(1, evenly(40, time.Second)...)
		s.steps[10].err = errBroken
		s.steps[30].err = errBroken
		o := s.options()
		o.Window, o.Lanes, o.Lane = 8, 2, func(i int) int { return i / 20 }
		j := prefetch.New(o, s)
		j.Run(t.Context())
		s.check(t, j, 10, errBroken)
	})
}
