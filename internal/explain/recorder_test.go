package explain

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/key"
)

// TestRecorder: prompts that were asked for are in the sample, with what was measured
// meanwhile; the queue is bounded.
func TestRecorder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked, hit atomic.Uint64
		var now atomic.Pointer[Tiers]
		tiers := Tiers{DRAM: Tier{Bytes: 1 << 20, Chunks: 50, Policy: "lru"}, Write: "auto"}
		now.Store(&tiers)
		r := NewRecorder(RecorderOptions{
			Tiers: func() Tiers { return *now.Load() }, Hits: func() (uint64, uint64) { return asked.Load(), hit.Load() },
		})
		if s := r.Sample(); len(s.Prompts) != 0 || s.Measured.AskedTokens != 0 || s.Tiers != tiers {
			t.Errorf("of nothing: %+v", s)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		chain := func(id byte, n int) *key.Chain {
			c := &key.Chain{}
			for i := range n {
				c.Hashes = append(c.Hashes, key.Hash{id, byte(i), byte(i >> 8), 1})
				c.Tokens = append(c.Tokens, 256)
			}
			return c
		}
		ask := func(c *key.Chain, hits uint64) {
			r.Asked(c)
			asked.Add(uint64(256 * c.Len()))
			hit.Add(256 * hits)
			time.Sleep(2 * time.Second)
		}
		for range 2 {
			for id := range byte(10) {
				ask(chain(id, 10), 3)
			}
		}
		r.Asked(&key.Chain{})
		alone := chain(99, 3)
		alone.Alone = true
		r.Asked(alone)
		s := r.Sample()
		if len(s.Prompts) != 20 || len(s.Parents) != 100 || s.Shift != 0 || s.Prompts[19].Warmup {
			t.Errorf("%d prompts, %d chunks, shift %d", len(s.Prompts), len(s.Parents), s.Shift)
		}
		if m := s.Measured; m.AskedTokens != 20*2560 || m.HitTokens != 20*768 || m.Since.After(s.Since) {
			t.Errorf("measured %+v", m)
		}
		other := tiers
		other.DRAM.Policy = "s3fifo" // what was hit before says nothing of it
		now.Store(&other)
		ask(chain(1, 10), 10)
		ask(chain(2, 10), 10) // the change is seen by now
		ask(chain(3, 10), 10)
		if m := r.Sample().Measured; m.AskedTokens != 2560 || m.HitTokens != 2560 {
			t.Errorf("measured since the change %+v", m)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		for range 5 {
			r.Asked(chain(7, queueHashes/4))
		}
		if s := r.Sample(); s.Dropped != 1 || s.Shift != 1 {
			t.Errorf("dropped %d, shift %d", s.Dropped, s.Shift)
		}
	})
}
