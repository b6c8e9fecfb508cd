package remote

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/test/s3test"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// TestReadsAndWrites at the same time, far more than may fly: none waits for
// one that waits for it, and neither direction takes more than its share.
func TestReadsAndWrites(t *testing.T) {
	const chunks, size = 64, 64 * kib
	virtual(t, func(t *testing.T, s *s3test.Memory, m tiertest.Allocator) {
		o := virtualOptions(s)
		o.Concurrency, o.FlightBytes = 4, 2*size
		r := connect(t, o)
		old, fresh := tiertest.Chain(1, chunks), tiertest.Chain(2, chunks)
		put(t, r, m, old, 0, chunks, size)
		start := time.Now()
		var g sync.WaitGroup
		for i := range chunks {
			g.Go(func() {
				if err := get(t, r, m, old.Key(i)); err != nil {
					t.Errorf("get %d: %v", i, err)
				}
			})
			g.Go(func() {
				e := tiertest.NewEntry(t, m.Arena, fresh, i, size)
				defer e.Block.Release()
				if err := r.Put(t.Context(), e); err != nil {
					t.Errorf("put %d: %v", i, err)
				}
			})
		}
		g.Wait()
		if took := time.Since(start); took > 2*chunks*latency {
			t.Errorf("%d gets and puts took %v of %v each", chunks, took, latency)
		}
		if gets, puts := s.Most(http.MethodGet), s.Most(http.MethodPut); gets > 4 || puts > 1 {
			t.Errorf("%d gets and %d puts at a time; at most 4 and 1", gets, puts)
		}
	})
}

// waiting is an Allocator whose memory is there once a put has ended.
type waiting struct {
	tiertest.Allocator
	free <-chan struct{}
}

func (w waiting) Alloc(ctx context.Context, n int) (arena.Block, error) {
	select {
	case <-w.free:
		return w.Allocator.Alloc(ctx, n)
	case <-ctx.Done():
		return arena.Block{}, ctx.Err()
	}
}

// TestReadsLeaveRoom: gets that wait for memory do not keep a put from the
// store that frees it.
func TestReadsLeaveRoom(t *testing.T) {
	const chunks = 64
	virtual(t, func(t *testing.T, s *s3test.Memory, m tiertest.Allocator) {
		o := virtualOptions(s)
		o.Concurrency = 8
		r := connect(t, o)
		c := tiertest.Chain(1, chunks)
		put(t, r, m, c, 0, chunks, kib)
		free := make(chan struct{})
		var g sync.WaitGroup
		for i := range chunks {
			g.Go(func() {
				b, err := r.Get(t.Context(), c.Key(i), waiting{m, free})
				if err != nil {
					t.Errorf("get %d: %v", i, err)
					return
				}
				b.Release()
			})
		}
		time.Sleep(latency)
		start := time.Now()
		put(t, r, m, tiertest.Chain(2, 1), 0, 1, kib)
		if took := time.Since(start); took != latency {
			t.Errorf("the put took %v; want one request of %v", took, latency)
		}
		close(free)
		g.Wait()
	})
}
