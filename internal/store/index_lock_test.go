package store

import (
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
)

// A long call that takes the index's lock again and again gives it to one that waits for
// it, instead of taking it for many batches more.
func TestIndexIsPassedOn(t *testing.T) {
	var x tierIndex
	var batches atomic.Int64
	var over atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for n := uint64(0); !over.Load(); {
			x.each(0, 64*indexBatch, func(i int) {
				if i%indexBatch == 0 {
					batches.Add(1)
				}
				for range 400 { // some 100 us for a batch
					n = n*3 + 1
				}
			})
		}
	}()
	var waited []int64
	for range 60 {
		for next := batches.Load() + 2; batches.Load() < next; { // it is at work
			runtime.Gosched()
		}
		before := batches.Load()
		x.lock()
		waited = append(waited, batches.Load()-before)
		x.mu.Unlock()
	}
	over.Store(true)
	<-ended
	slices.Sort(waited)
	if n := waited[len(waited)/2]; n > 2 {
		t.Errorf("half of those that want the lock wait for %d batches and more, want 2 at most", n)
	}
}
