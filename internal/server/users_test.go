package server

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestSlow: connections that were not greeted are kept, the more of them a user has the
// longer, and not beyond the end of the server.
func TestSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var u, other tenant
		ctx, stop := context.WithCancel(t.Context())
		var mu sync.Mutex
		var took []time.Duration
		wait := func(u *tenant) {
			begun := time.Now()
			u.slow(ctx)
			mu.Lock()
			defer mu.Unlock()
			took = append(took, time.Since(begun))
		}
		for range 3 {
			go wait(&u)
		}
		go wait(&other)
		time.Sleep(slowMost)
		synctest.Wait()
		slices.Sort(took)
		if want := []time.Duration{slowEach, slowEach, 2 * slowEach, 3 * slowEach}; !slices.Equal(took, want) {
			t.Errorf("they took %v, want %v", took, want)
		}
		took = nil
		for range 200 {
			go wait(&u)
		}
		time.Sleep(slowMost)
		synctest.Wait()
		if n := u.slowed.Load(); len(took) != 200 || n != 0 {
			t.Errorf("%d of 200 have waited after %v, %d wait", len(took), slowMost, n)
		}
		took = nil
		go wait(&u)
		synctest.Wait()
		stop()
		synctest.Wait()
		if !slices.Equal(took, []time.Duration{0}) {
			t.Errorf("at the end of the server one took %v", took)
		}
	})
}
