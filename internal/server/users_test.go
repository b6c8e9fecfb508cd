package server

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/fair"
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

// TestPace: so many connections of a user are served at once, and one each paceEach after
// that, in the order in which they come; those of another do not wait. A user who has left
// is remembered until that makes no difference, and not longer.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		us := users{gate: fair.NewGate(1, fair.Machine{}), limits: &Limits{Connections: 20_000, UIDConnections: 10_000}}
		us.mu.byID = make(map[identity]*tenant)
		var all []*tenant
		enter := func(uid uint32, want time.Duration) {
			t.Helper()
			u, wait, _, err := us.enter(identity{uid: uid}, false)
			if err != nil || wait != want {
				t.Fatalf("after %d connections one waits %v, want %v: %v", len(all), wait, want, err)
			}
			all = append(all, u)
		}
		leave := func() {
			for _, u := range all {
				us.leave(u)
			}
			all = nil
		}
		remembered := func() int {
			us.mu.Lock()
			defer us.mu.Unlock()
			return len(us.mu.byID)
		}
		for range paceBurst {
			enter(1, 0)
		}
		for i := range 100 {
			enter(1, time.Duration(i+1)*paceEach)
		}
		enter(2, 0)
		time.Sleep(40 * paceEach)
		enter(1, 61*paceEach)
		leave()
		enter(1, 62*paceEach) // although none of it is left
		leave()
		time.Sleep(time.Minute)
		if n := remembered(); n != 0 {
			t.Errorf("%d users without connections are remembered", n)
		}
		enter(1, 0)
		for range paceBurst + paceMost/paceEach - 1 {
			u, _, _, err := us.enter(identity{uid: 1}, false)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, u)
		}
		enter(1, paceMost)
		enter(1, paceMost)
		leave()
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(us.mu.byID) != 0 || us.mu.connections != 0 {
			t.Errorf("%d users, %d connections are left", len(us.mu.byID), us.mu.connections)
		}
	})
}
