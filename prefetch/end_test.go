package prefetch_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/prefetch"
)

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

// Completion and failure at the very moment of the deadline: any of the two may
// come first, but a complete job has no error.
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
	synctest.Test(t, func(t *testing.T) {
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
	})
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
	synctest.Test(t, func(t *testing.T) {
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
	})
}

// The first failure of the prefix ends the job, once what lies before it is
// there, and with it the loads behind, which no job waits for any more.
func TestFailureEndsTheLoadsBehindIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(1, evenly(8, time.Second)...)
		s.steps[2].after = time.Minute
		s.steps[3] = step{after: 2 * time.Second, err: errBroken}
		for i := 4; i < 8; i++ {
			s.steps[i].hang = true
		}
		j := prefetch.New(s.options(), s)
		start := time.Now()
		j.Run(t.Context())
		if d := time.Since(start); d != time.Minute {
			t.Errorf("the job ran for %v; want a minute, until what lies before the failure was there", d)
		}
		s.check(t, j, 3, errBroken)
	})
}
