package store_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/internal/writeback"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// TestFlushBesideCommits: a flush does not take chunks that come meanwhile, and are being
// written, for such as were dropped; also not those of keys that are stored again and again.
func TestFlushBesideCommits(t *testing.T) {
	for _, chains := range []uint64{2, 8} {
		t.Run(fmt.Sprint(chains), func(t *testing.T) { flushBesideCommits(t, chains) })
	}
}

func flushBesideCommits(t *testing.T, chains uint64) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		var storing sync.WaitGroup
		done := make(chan struct{})
		for client := range uint64(2) {
			storing.Go(func() {
				for seed := client; ; seed += 2 {
					select {
					case <-done:
						return
					default:
					}
					c := tiertest.Chain(seed%chains, 4)
					r.see(c)
					r.put(c, 0, 4, size)
					if _, err := r.Remover.Delete(t.Context(), tiertest.Keys(c, 0, 4)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		for range 2000 {
			r.flush()
			if reason, v := r.Writers.Unflushed(writeback.Volume{}); v.Chunks > 0 {
				t.Errorf("%d chunks are said to be on disk no more: %s", v.Chunks, reason)
				break
			}
		}
		close(done)
		storing.Wait()
	})
}
