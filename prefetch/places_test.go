package prefetch_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/prefetch"
)

// A job has 64 loads under way at the most, however small chunks are, and several jobs
// together as many as there are places for them.
func TestPlaces(t *testing.T) {
	for _, c := range []struct{ jobs, places, most int }{
		{1, 0, 64}, {3, 0, 3 * 64}, {1, 10, 10}, {4, 10, 10}, {4, 100, 100}, {2, 1000, 2 * 64},
	} {
		synctest.Test(t, func(t *testing.T) {
			shared := newScript(1, evenly(300, time.Second)...)
			var places chan struct{}
			if c.places > 0 {
				places = make(chan struct{}, c.places)
			}
			var running sync.WaitGroup
			for range c.jobs {
				o := shared.options()
				o.Window, o.ChunkBytes, o.Places = 1<<20, 1, places
				j := prefetch.New(o, shared)
				running.Go(func() { j.Run(t.Context()) })
				defer func() {
					if n := j.State().Ready; n != 300 {
						t.Errorf("%+v: %d chunks of 300 are ready", c, n)
					}
				}()
			}
			running.Wait()
			if shared.most != c.most || len(places) != 0 {
				t.Errorf("%+v: %d loads at a time, %d places taken at the end", c, shared.most, len(places))
			}
		})
	}
}
