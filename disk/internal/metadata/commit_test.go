package metadata

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/tier"
)

// stubborn is a deletion that the database has no room for yet.
type stubborn struct {
	c       *Committer
	free    atomic.Bool
	refused chan struct{} // capacity 1: it waits to be tried again
	done    chan struct{}
}

func newStubborn(c *Committer) *stubborn {
	return &stubborn{c: c, refused: make(chan struct{}, 1), done: make(chan struct{})}
}

func (s *stubborn) Apply(*Batch) error {
	if !s.free.Load() {
		return tier.ErrNoSpace
	}
	return nil
}

func (s *stubborn) Committed(err error) {
	if err == nil {
		close(s.done)
		return
	}
	s.c.Requeue(s)
	select {
	case s.refused <- struct{}{}:
	default:
	}
}

// What could not be committed is made up for once it can, though nothing else
// is to be committed.
func TestCommitAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCommitter(testStore(t), free{}, 1)
		ctx, stop := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- c.Run(ctx) }()
		defer func() {
			stop()
			<-ran
		}()
		s := newStubborn(c)
		if err := c.Add(s); err != nil {
			t.Fatal(err)
		}
		<-s.refused
		s.free.Store(true)
		<-s.done // else the bubble hangs
	})
}

// Nor does it keep the committer busy until then: a commit of nothing but that
// says that it got nowhere.
func TestCommitRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCommitter(testStore(t), free{}, 1) // without run only the test commits
		s := newStubborn(c)
		commit := func(want bool) {
			t.Helper()
			if got := c.commit(c.take(false)); got != want {
				t.Errorf("a commit says that there may be more to do: %t, want %t", got, want)
			}
		}
		for range 3 {
			if err := c.Add(s); err != nil {
				t.Fatal(err)
			}
			commit(false)
			if n := c.Queued(); n != 1 {
				t.Fatalf("%d changes wait to be tried again, want the one", n)
			}
			c.take(false)
		}
		s.free.Store(true)
		if err := c.Add(s); err != nil {
			t.Fatal(err)
		}
		commit(true)
		<-s.done
		commit(false) // of nothing
	})
}
