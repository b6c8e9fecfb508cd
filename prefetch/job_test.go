package prefetch_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/prefetch"
)

func TestComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(1, evenly(20, time.Second)...)
		s.steps[3].after = 5 * time.Second // the others overtake it
		j := prefetch.New(s.options(), s)
		j.Run(t.Context())
		s.check(t, j, 20, nil)
		s.checkOrder(t)
	})
}

func TestFromTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(1, evenly(9, time.Second)...)
		o := s.options()
		o.From, o.To = 5, 8
		s.from = 5
		j := prefetch.New(o, s)
		j.Run(t.Context())
		s.check(t, j, 3, nil)
		slices.Sort(s.starts)
		if want := []int{5, 6, 7}; !slices.Equal(s.starts, want) {
			t.Errorf("loaded %v; want %v", s.starts, want)
		}
		if got := j.Ready(1, nil); len(got) != 2 || got[0].i != 6 {
			t.Errorf("ready from the second on: %v", got)
		}
	})
}

func TestEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(1)
		j := prefetch.New(s.options(), s)
		j.Run(t.Context())
		s.check(t, j, 0, nil)
	})
}

func TestFailure(t *testing.T) {
	for _, c := range []struct {
		name      string
		steps     func([]step)
		ready     int
		discarded []int
	}{
		{"first chunk", func(s []step) { s[0].err = errBroken }, 0, []int{1, 2, 3}},
		{"in the middle", func(s []step) { s[2].err = errBroken }, 2, []int{3}},
		{"last chunk", func(s []step) { s[9].err = errBroken }, 9, nil},
		{"what follows was faster", func(s []step) { s[1] = step{after: 3 * time.Second, err: errBroken} }, 1, nil},
		{"what precedes is slower", func(s []step) {
			s[0].after, s[2] = 9*time.Second, step{after: 2 * time.Second, err: errBroken}
		}, 2, []int{3}},
		{"an earlier one fails later", func(s []step) {
			s[1] = step{after: 4 * time.Second, err: errBroken}
			s[3].err = errors.New("comes first, counts second")
		}, 1, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScript(1, evenly(10, time.Second)...)
				c.steps(s.steps)
				j := prefetch.New(s.options(), s)
				j.Run(t.Context())
				s.check(t, j, c.ready, errBroken)
				for _, i := range c.discarded {
					if s.discarded[i] != 1 {
						t.Errorf("chunk %d was discarded %d times; want once", i, s.discarded[i])
					}
				}
			})
		})
	}
}

// A failure tells those who wait at once, if all before it is there.
func TestFailureEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(1, evenly(4, time.Hour)...)
		s.steps[0].after, s.steps[1] = time.Second, step{after: 2 * time.Second, err: errBroken}
		j := prefetch.New(s.options(), s)
		start := time.Now()
		go j.Run(t.Context())
		st := j.Wait(t.Context(), 4)
		if d := time.Since(start); d != 2*time.Second || st.Ready != 1 || !st.Done {
			t.Errorf("after %s: %+v; want 1 ready and done after 2 s", d, st)
		}
		synctest.Wait() // what was under way has ended too: nobody waits for it
		s.check(t, j, 1, errBroken)
		if len(s.given) != 1 {
			t.Errorf("%d loads brought something up; want 1", len(s.given))
		}
	})
}

// The window holds from the first load on, when no chunk has told yet how large
// chunks are.
func TestWindow(t *testing.T) {
	for _, c := range []struct {
		window, chunk int64 // chunk: what is known of their size, which is 10
		first, most   int
	}{
		{0, 0, 1, 1},
		{0, 10, 1, 1},
		{10, 10, 1, 1},
		{19, 10, 1, 1},
		{20, 10, 2, 2},
		{60, 10, 6, 6},
		{1 << 40, 10, 64, 64},
		{60, 0, 1, 6}, // nothing is known
		{60, -1, 1, 6},
		{60, 20, 3, 6}, // the most that they may have
		{60, 64, 1, 6},
		{60, 1 << 40, 1, 6},
		{60, 5, 12, 12}, // wrong, and found out
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(10, evenly(200, time.Second)...)
			for i := range s.steps {
				s.steps[i].after += time.Duration(i) * time.Millisecond
			}
			o := s.options()
			o.Window, o.ChunkBytes = c.window, c.chunk
			j := prefetch.New(o, s)
			j.Run(t.Context())
			s.check(t, j, 200, nil)
			if s.first != c.first || s.most != c.most {
				t.Errorf("window of %d bytes, chunks of 10 that count as %d: %d in flight at first and %d at most; want %d and %d",
					c.window, c.chunk, s.first, s.most, c.first, c.most)
			}
			s.checkOrder(t)
		})
	}
}

// The prefix only grows, and Changed is called each time.
func TestChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(1, step{after: 3 * time.Second}, step{after: time.Second}, step{after: 4 * time.Second}, step{after: 5 * time.Second, err: errBroken})
		o := s.options()
		var mu sync.Mutex
		var states []prefetch.State
		var j *prefetch.Job[chunk]
		o.Changed = func() {
			mu.Lock()
			defer mu.Unlock()
			states = append(states, j.State())
		}
		j = prefetch.New(o, s)
		j.Run(t.Context())
		s.check(t, j, 3, errBroken)
		var ready []int
		for _, st := range states {
			ready = append(ready, st.Ready)
		}
		if want := []int{2, 3, 3}; !slices.Equal(ready, want) || !states[2].Done || states[1].Done {
			t.Errorf("told %+v; want a prefix of 2, of 3, and the end", states)
		}
	})
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(1, evenly(4, time.Second)...)
		s.steps[2].after = time.Minute
		j := prefetch.New(s.options(), s)
		go j.Run(t.Context())
		if st := j.Wait(t.Context(), 0); st.Ready != 0 || st.Done {
			t.Errorf("waiting for nothing: %+v", st)
		}
		start := time.Now()
		if st := j.Wait(t.Context(), 2); st.Ready != 2 || time.Since(start) != time.Second {
			t.Errorf("waiting for 2: %+v after %s", st, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if st := j.Wait(ctx, 3); st.Ready != 2 || st.Done {
			t.Errorf("waiting until the context ends: %+v", st)
		}
		if st := j.Wait(t.Context(), 9); st.Ready != 4 || !st.Done {
			t.Errorf("waiting for more than there is: %+v", st)
		}
	})
}

// Fifty jobs, each with troubles of its own.
func TestManyJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wg sync.WaitGroup
		for n := range 50 {
			s := newScript(int64(1+n%3), evenly(40, time.Duration(1+n%7)*time.Second)...)
			ready, reason := 40, error(nil)
			o := s.options()
			o.Window = int64(1 + n)
			switch n % 5 {
			case 1:
				s.steps[n/2].err = errBroken
				ready, reason = n/2, errBroken
			case 2:
				s.steps[n/2].hang = true
				o.Deadline = time.Now().Add(time.Hour)
				ready, reason = n/2, prefetch.ErrDeadline
			case 3:
				s.steps[n/2].hang = true
				ready, reason = n/2, prefetch.ErrCancelled
			case 4: // those that come before the first take all the room, and the last of them gives it back
				s.room, ready, reason = 1+n/2, 1+n/2, errNoRoom
				o.Window, o.ChunkBytes = 1<<20, 1
				for i := range s.steps {
					s.steps[i].after = time.Duration(i) * time.Second
				}
				s.steps[0].after = time.Minute + time.Second/2
			}
			j := prefetch.New(o, s)
			wg.Go(func() {
				j.Run(t.Context())
				s.check(t, j, ready, reason)
			})
			wg.Go(func() {
				if n%5 == 3 {
					time.Sleep(time.Hour)
					j.Cancel()
				} else if j.Wait(t.Context(), 40); n%5 == 2 {
					j.Cancel() // the load that hangs
				}
			})
		}
		wg.Wait()
	})
}
