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

var errBroken = errors.New("broken")

// step is what a scripted source does with one chunk.
type step struct {
	after time.Duration // when it answers
	err   error
	hang  bool // answers when its context ends
	deaf  bool // answers after its time whatever its context says
}

// chunk is a loaded value: which one, and of which source.
type chunk struct {
	i   int
	src *script
}

// script is a Source that does as it is told and keeps the books: every value
// it has given out must end up in Ready or in discard, once.
type script struct {
	steps []step
	size  int64

	from int

	mu        sync.Mutex
	starts    []int
	flying    int
	most      int // flying at a time
	mostKnown int // flying at a time when a load started after one had ended
	ended     int
	given     map[int]int
	discarded map[int]int
}

func newScript(size int64, steps ...step) *script {
	return &script{steps: steps, size: size, given: make(map[int]int), discarded: make(map[int]int)}
}

// evenly is n chunks that take d each.
func evenly(n int, d time.Duration) []step { return slices.Repeat([]step{{after: d}}, n) }

func (s *script) Load(ctx context.Context, i int) (chunk, int64, error) {
	s.begin(i)
	st := s.steps[i]
	var err error
	if st.hang {
		<-ctx.Done()
		err = ctx.Err()
	} else {
		t := time.NewTimer(st.after)
		defer t.Stop()
		done := ctx.Done()
		if st.deaf {
			done = nil
		}
		select {
		case <-t.C:
			err = st.err
		case <-done:
			err = ctx.Err()
		}
	}
	return chunk{i, s}, s.size, s.finish(i, err)
}

func (s *script) begin(i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starts = append(s.starts, i)
	s.flying++
	s.most = max(s.most, s.flying)
	if s.ended > 0 {
		s.mostKnown = max(s.mostKnown, s.flying)
	}
}

func (s *script) finish(i int, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flying--
	s.ended++
	if err == nil {
		s.given[i]++
	}
	return err
}

func (s *script) discard(c chunk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.discarded[c.i]++
}

// options are those of a job over all chunks of s with a window that never
// binds.
func (s *script) options() prefetch.Options[chunk] {
	return prefetch.Options[chunk]{To: len(s.steps), Window: 1 << 40, Discard: s.discard}
}

// check compares a job that has run with what it should have become.
func (s *script) check(t *testing.T, j *prefetch.Job[chunk], ready int, reason error) {
	t.Helper()
	st := j.State()
	if st.Ready != ready || !st.Done || !errors.Is(st.Err, reason) || (reason == nil) != (st.Err == nil) {
		t.Errorf("the job is %+v; want %d ready, done, error %v", st, ready, reason)
	}
	s.balance(t, j)
}

// balance checks that every value is in Ready or was discarded, once.
func (s *script) balance(t *testing.T, j *prefetch.Job[chunk]) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	got := j.Ready(0, nil)
	if len(got) != j.State().Ready {
		t.Errorf("%d values ready; the state says %d", len(got), j.State().Ready)
	}
	held := make(map[int]int)
	for at, c := range got {
		if held[c.i]++; c.i != s.from+at {
			t.Errorf("value %d of the ready prefix is chunk %d", at, c.i)
		}
	}
	for i := range s.steps {
		if s.given[i] != held[i]+s.discarded[i] {
			t.Errorf("chunk %d: given out %d times, %d ready, %d discarded", i, s.given[i], held[i], s.discarded[i])
		}
	}
	if s.flying != 0 {
		t.Errorf("%d loads outlive Run", s.flying)
	}
}

// checkOrder checks that loads began in prefix order. Those that fly together
// may overtake each other on their way into Load, but no others.
func (s *script) checkOrder(t *testing.T) {
	t.Helper()
	for at, i := range s.starts {
		if i-s.from >= at+s.most {
			t.Errorf("chunk %d was the %dth to start, with at most %d in flight", i, at, s.most)
		}
	}
}

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
	s := newScript(1)
	j := prefetch.New(s.options(), s)
	j.Run(t.Context())
	s.check(t, j, 0, nil)
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
		{"what precedes is slower", func(s []step) { s[0].after = 9 * time.Second; s[2].err = errBroken }, 2, nil},
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
		synctest.Wait()
		time.Sleep(2 * time.Hour) // what is under way goes on, into the cache
		s.check(t, j, 1, errBroken)
		if len(s.given) != 3 {
			t.Errorf("%d loads came to an end; want 3", len(s.given))
		}
	})
}

func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(1, evenly(10, time.Second)...)
		for i := 4; i < 10; i++ {
			s.steps[i].after = time.Minute
		}
		o := s.options()
		start := time.Now()
		o.Deadline = start.Add(30 * time.Second)
		j := prefetch.New(o, s)
		ran := make(chan struct{})
		go func() { j.Run(t.Context()); close(ran) }()
		st := j.Wait(t.Context(), 10)
		if d := time.Since(start); d != 30*time.Second || st.Ready != 4 {
			t.Errorf("answered after %s with %d; want 4 at the deadline", d, st.Ready)
		}
		<-ran // loads under way were not cut off
		s.check(t, j, 4, prefetch.ErrDeadline)
		if len(s.given) != 10 {
			t.Errorf("%d loads came to an end; want all 10, cached", len(s.given))
		}
	})
}

// Completion and failure at the very moment of the deadline: any of the two
// may come first, but what is complete has no error.
func TestDeadlineMeetsCompletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 200 {
			s := newScript(1, evenly(3, time.Second)...)
			o := s.options()
			o.Deadline = time.Now().Add(time.Second)
			j := prefetch.New(o, s)
			j.Run(t.Context())
			s.balance(t, j)
			st := j.State()
			if (st.Ready == 3) != (st.Err == nil) || st.Err != nil && !errors.Is(st.Err, prefetch.ErrDeadline) {
				t.Fatalf("%+v: complete without an error, or short because of the deadline", st)
			}
		}
	})
}

func TestHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(1, evenly(5, time.Second)...)
		s.steps[2].hang = true
		o := s.options()
		o.Deadline = time.Now().Add(10 * time.Second)
		j := prefetch.New(o, s)
		ran := make(chan struct{})
		go func() { j.Run(t.Context()); close(ran) }()
		if st := j.Wait(t.Context(), 5); st.Ready != 2 {
			t.Errorf("%d ready at the deadline; want 2", st.Ready)
		}
		j.Cancel()
		<-ran
		s.check(t, j, 2, prefetch.ErrDeadline)
	})
}

func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(1, evenly(8, time.Second)...)
		s.steps[2].hang, s.steps[3] = true, step{after: time.Minute, deaf: true}
		j := prefetch.New(s.options(), s)
		ran := make(chan struct{})
		go func() { j.Run(t.Context()); close(ran) }()
		time.Sleep(5 * time.Second)
		j.Cancel()
		if st := j.State(); !st.Done || st.Ready != 2 {
			t.Errorf("right after the cancel: %+v; want 2 ready, done", st)
		}
		<-ran
		s.check(t, j, 2, prefetch.ErrCancelled)
		j.Cancel() // again
		s.check(t, j, 2, prefetch.ErrCancelled)
	})
}

func TestCancelBeforeRun(t *testing.T) {
	s := newScript(1, evenly(3, time.Hour)...)
	j := prefetch.New(s.options(), s)
	j.Cancel()
	j.Run(t.Context())
	if len(s.starts) != 0 {
		t.Errorf("loads were started: %v", s.starts)
	}
	if st := j.State(); st.Ready != 0 || !errors.Is(st.Err, prefetch.ErrCancelled) {
		t.Errorf("%+v; want cancelled", st)
	}
}

// The context of Run is a cancel, told by its name and not by what the
// interrupted loads say.
func TestContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 100 {
			s := newScript(1, evenly(8, time.Second)...)
			s.steps[2].hang = true
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			j := prefetch.New(s.options(), s)
			j.Run(ctx)
			cancel()
			s.check(t, j, 2, prefetch.ErrCancelled)
		}
	})
}

func TestCancelMeetsCompletion(t *testing.T) {
	for range 1000 {
		s := newScript(1, evenly(3, 0)...)
		j := prefetch.New(s.options(), s)
		var wg sync.WaitGroup
		wg.Go(func() { j.Run(t.Context()) })
		wg.Go(func() {
			j.Wait(t.Context(), 2)
			j.Cancel()
		})
		wg.Wait()
		if len(s.starts) == 0 {
			t.Fatal("nothing was loaded before the cancel")
		}
		s.balance(t, j)
		st := j.State()
		if (st.Ready == 3) != (st.Err == nil) || st.Err != nil && !errors.Is(st.Err, prefetch.ErrCancelled) {
			t.Fatalf("%+v: complete without an error, or cancelled", st)
		}
	}
}

func TestWindow(t *testing.T) {
	for _, c := range []struct {
		window int64
		most   int
	}{{0, 1}, {10, 1}, {19, 1}, {20, 2}, {60, 6}, {1 << 40, 64}} {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(10, evenly(200, time.Second)...)
			for i := range s.steps {
				s.steps[i].after += time.Duration(i) * time.Millisecond
			}
			o := s.options()
			o.Window = c.window
			j := prefetch.New(o, s)
			j.Run(t.Context())
			s.check(t, j, 200, nil)
			if s.mostKnown > c.most {
				t.Errorf("window of %d bytes: %d chunks of 10 in flight; want at most %d", c.window, s.mostKnown, c.most)
			}
			if s.most < c.most {
				t.Errorf("window of %d bytes: never more than %d in flight; want %d", c.window, s.most, c.most)
			}
			s.checkOrder(t)
		})
	}
}

// The prefix only grows, and everybody is told each time.
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
