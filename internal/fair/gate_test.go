package fair

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// compute is a request that takes d, in pieces between which it yields.
func compute(ctx context.Context, t *Turn, d, piece time.Duration) {
	t.Begin(ctx, time.Now())
	for ; d > 0 && ctx.Err() == nil; d -= piece {
		time.Sleep(min(d, piece))
		t.Yield()
	}
	t.End(time.Now())
}

// keepComputing has strands of users compute until end is called.
func keepComputing(d time.Duration, strands int, of ...*User) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for _, u := range of {
		for range strands {
			all.Go(func() {
				for turn := u.NewTurn(); ctx.Err() == nil; turn.Leave() {
					compute(ctx, turn, d, slice)
				}
			})
		}
	}
	return func() {
		cancel()
		all.Wait()
	}
}

// busyUser is a user whose work is not light any more.
func busyUser(g *Gate) *User {
	u := g.NewUser()
	u.charge(time.Now(), lightShare)
	return u
}

// startWindow returns in the first moment of a window: they are counted from the start of
// the process, which is at any time of those of a bubble.
func startWindow() { time.Sleep(window - time.Since(epoch)%window + 1) }

func TestLightWorkPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(1, Machine{})
		long := busyUser(g).NewTurn()
		long.Begin(t.Context(), time.Now()) // and never yields
		light := g.NewUser().NewTurn()
		start := time.Now()
		light.Begin(t.Context(), start)
		time.Sleep(slice / 2)
		light.End(time.Now())
		light.Leave()
		if d := time.Since(start); d != slice/2 {
			t.Errorf("light work took %v, not %v", d, slice/2)
		}
		// A user's requests are light until they are many.
		n := 0
		for ; !light.in; n++ {
			light.Begin(t.Context(), time.Now())
			time.Sleep(slice / 2)
			light.Leave()
			if n > 100 {
				t.Fatal("work of a user is light for ever")
			}
			if time.Since(start) > patience { // it waited for the other one
				break
			}
		}
		if least := int(lightShare/(slice/2)) - 1; n < least {
			t.Errorf("after %d requests it is not light any more, want %d", n, least)
		}
	})
}

// TestUsersTakeTurns: however many strands a user has and however long its
// requests are, another user gets half of the time while it wants it.
func TestUsersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(1, Machine{})
		many, few := busyUser(g), busyUser(g)
		defer keepComputing(100*time.Millisecond, 300, many)() // each of them waits for longer than patience goes
		time.Sleep(time.Second)
		turn, start, worst := few.NewTurn(), time.Now(), time.Duration(0)
		for range 100 {
			at := time.Now()
			compute(t.Context(), turn, slice/2, slice/2)
			turn.Leave()
			worst = max(worst, time.Since(at))
		}
		if most := 100 * (slice + slice/2); time.Since(start) > most || worst > 2*slice {
			t.Errorf("100 halves of a slice took %v, one of them %v; want %v at most", time.Since(start), worst, most)
		}
	})
}

// TestStrandsTakeTurns: a short request of a user who has long ones under way
// waits for a slice of each, not for their ends.
func TestStrandsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(1, Machine{})
		u := busyUser(g)
		const long = 4
		defer keepComputing(time.Second, long, u)()
		time.Sleep(20 * time.Millisecond)
		start, turn := time.Now(), u.NewTurn()
		compute(t.Context(), turn, slice/2, slice/2)
		turn.Leave()
		if d := time.Since(start); d > (long+1)*slice {
			t.Errorf("it took %v, want %v at most", d, (long+1)*slice)
		}
	})
}

// TestPlaces: as many compute at a time as there are places, all of which are
// given back, and busy is told of each.
func TestPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now, most := 0, 0
		g := NewGate(3, Machine{Busy: func(change int) { // under the gate's mutex
			now += change
			most = max(most, now)
		}})
		var us []*User
		for range 20 {
			us = append(us, busyUser(g))
		}
		end := keepComputing(3*slice, 1, us...)
		synctest.Wait()
		if g.Waiting() != 17 {
			t.Errorf("%d wait, want 17", g.Waiting())
		}
		time.Sleep(time.Second)
		end()
		if most != 3 || now != 0 || g.Waiting() != 0 || len(g.mu.line) != 0 {
			t.Errorf("%d at most, %d are in, %d wait, %d in line; want 3 and none", most, now, g.Waiting(), len(g.mu.line))
		}
	})
}

// TestThreadsYield: a turn lets other threads run after each slice, whether or not turns
// wait, and what they take of the time is not charged to its user.
func TestThreadsYield(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		yields := 0
		g := NewGate(1, Machine{Yield: func() {
			yields++
			time.Sleep(4 * time.Millisecond)
		}})
		turn := busyUser(g).NewTurn()
		turn.Begin(t.Context(), time.Now())
		turn.Yield() // too early
		for range 3 {
			time.Sleep(slice)
			turn.Yield()
		}
		other := busyUser(g).NewTurn()
		var done sync.WaitGroup
		done.Go(func() {
			other.Begin(t.Context(), time.Now())
			other.Leave()
		})
		synctest.Wait()
		time.Sleep(slice)
		turn.Yield()
		done.Wait()
		time.Sleep(slice)
		turn.End(time.Now())
		if yields != 4 {
			t.Errorf("threads could run %d times in four slices", yields)
		}
		if d := time.Duration(turn.user.spent.Load()); d >= lightShare {
			t.Errorf("%v of the last window are charged, of which it had three slices at most", d)
		}
		turn.Leave()
	})
}

// TestPatience: a turn that blocks with its place does not stop the others.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(1, Machine{})
		stuck := busyUser(g).NewTurn()
		stuck.Begin(t.Context(), time.Now())
		for i := range 3 {
			start, turn := time.Now(), busyUser(g).NewTurn()
			turn.Begin(t.Context(), start)
			if d := time.Since(start); d != patience {
				t.Errorf("turn %d waited for %v, want %v", i, d, patience)
			}
			turn.Leave()
		}
		stuck.Leave()
		start, turn := time.Now(), busyUser(g).NewTurn()
		if turn.Begin(t.Context(), start); time.Since(start) != 0 || !turn.in {
			t.Errorf("a free place is not taken at once")
		}
		turn.Leave()
	})
}

// TestIdleEarnsNothing: a user who was away does not get more than its share
// afterwards.
func TestIdleEarnsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(1, Machine{})
		ctx, cancel := context.WithCancel(t.Context())
		var had [2]atomic.Int64 // requests of 10 ms
		var all sync.WaitGroup
		work := func(i int) {
			for turn := busyUser(g).NewTurn(); ctx.Err() == nil; turn.Leave() {
				compute(ctx, turn, 10*time.Millisecond, slice)
				had[i].Add(1)
			}
		}
		all.Go(func() { work(0) })
		time.Sleep(time.Second)
		before := had[0].Load()
		all.Go(func() { work(1) })
		time.Sleep(time.Second)
		cancel()
		all.Wait()
		if a, b := had[0].Load()-before, had[1].Load(); a < b-20 || a > b+20 {
			t.Errorf("the one had %d requests, the one that was away %d", a, b)
		}
	})
}

// TestNoTurn: work without a turn never waits.
func TestNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turn *Turn
		turn.Begin(t.Context(), time.Now())
		turn.Yield()
		turn.End(time.Now())
		turn.Leave()
		Yield(t.Context())
		Leave(t.Context())
		Yield(With(t.Context(), turn))
		Leave(With(t.Context(), turn))
	})
}

// TestGateAllocates: taking and giving back a place allocates nothing.
func TestGateAllocates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turn := busyUser(NewGate(1, Machine{})).NewTurn()
		ctx := With(t.Context(), turn)
		if n := testing.AllocsPerRun(100, func() {
			turn.user.charge(time.Now(), lightShare)
			turn.Begin(t.Context(), time.Now())
			Yield(ctx)
			turn.End(time.Now())
			Leave(ctx)
		}); n != 0 {
			t.Errorf("%v allocations a request", n)
		}
	})
}

func BenchmarkTurn(b *testing.B) {
	for _, light := range []bool{true, false} {
		b.Run(fmt.Sprintf("light=%v", light), func(b *testing.B) {
			turn := NewGate(1, Machine{}).NewUser().NewTurn()
			now := time.Now()
			for b.Loop() {
				if !light {
					turn.user.charge(now, lightShare)
				} else {
					turn.user.spent.Store(0)
				}
				turn.Begin(b.Context(), now)
				turn.Rest(now)
			}
		})
	}
}

// TestShortRequests: a short request of a user who computes a lot waits for no place, and
// is charged; but after a slice of them, one after the other, the next one waits.
func TestShortRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		startWindow() // else what is charged may be counted anew
		g := NewGate(1, Machine{})
		u := busyUser(g)
		long := u.NewTurn()
		if err := long.Begin(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		turn := u.NewTurn()
		begun, spent := time.Now(), u.spent.Load()
		if err := turn.BeginShort(t.Context(), begun); err != nil || turn.in || time.Since(begun) > 0 {
			t.Errorf("a short request has begun with %v after %v, with a place: %t", err, time.Since(begun), turn.in)
		}
		time.Sleep(slice)
		turn.End(time.Now())
		if got := time.Duration(u.spent.Load() - spent); got != slice {
			t.Errorf("for a short request that took %v its user is charged %v", slice, got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience/2)
		defer cancel()
		if err := turn.BeginShort(ctx, time.Now()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("behind a slice of short requests the next one has begun with %v, want it to wait", err)
		}
		turn.Leave()
		if err := turn.BeginShort(t.Context(), time.Now()); err != nil {
			t.Errorf("behind a wait for the client a short request has begun with %v", err)
		}
		turn.Leave()
		long.Leave()
	})
}
