package prefetch_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/prefetch"
)

var errBroken, errNoRoom = errors.New("broken"), errors.New("no room")

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
	room  int // values that may be out at a time; 0: any number

	from int

	mu        sync.Mutex
	starts    []int
	flying    int
	most      int // flying at a time
	first     int // flying at a time before one had ended
	ended     int
	out       int // values given out and not discarded
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
	base.Queued(ctx)
	st := s.steps[i]
	err := st.err
	switch {
	case st.hang:
		<-ctx.Done()
		err = ctx.Err()
	case st.after > 0:
		// A timer that is due at once would run in the goroutine that asks its channel:
		// in a bubble two of them share one state of the race detector, which breaks it.
		t := time.NewTimer(st.after)
		defer t.Stop()
		done := ctx.Done()
		if st.deaf {
			done = nil
		}
		select {
		case <-t.C:
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
	if s.ended == 0 {
		s.first = s.flying
	}
}

func (s *script) finish(i int, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flying--
	s.ended++
	if err == nil && s.room > 0 && s.out == s.room {
		err = errNoRoom
	}
	if err == nil {
		s.given[i]++
		s.out++
	}
	return err
}

func (s *script) discard(c chunk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.discarded[c.i]++
	s.out--
}

// options are those of a job over all chunks of s with a window that never
// binds, but that chunks may turn out to be a quarter of it.
func (s *script) options() prefetch.Options[chunk] {
	return prefetch.Options[chunk]{
		To: len(s.steps), Window: 1 << 40, ChunkBytes: 1 << 38, Discard: s.discard,
		Yields: func(err error) bool { return errors.Is(err, errNoRoom) },
	}
}

// check compares a job that has run with the number ready and the error that the
// script leads to.
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
